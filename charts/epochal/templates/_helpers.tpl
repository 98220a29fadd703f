{{/* The first part of all names: the release's, with the chart's unless it is in it. */}}
{{- define "epochal.name" -}}
{{- if .Values.nameOverride -}}
{{- .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "epochal.selectorLabels" -}}
app.kubernetes.io/name: epochal-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "epochal.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{ include "epochal.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "epochal.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "epochal.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "epochal.name" .) -}}
{{- end -}}

{{/* Where drivers run, as JSON. */}}
{{- define "epochal.workloadNamespaces" -}}
{{- .Values.workload.namespaces | default .Values.watchNamespaces | toJson -}}
{{- end -}}

{{/* A driver may start pods as any account of its namespace. In the release's namespace that would be the operator. */}}
{{- define "epochal.checkNamespaces" -}}
{{- range $value := list "watchNamespaces" "workload.namespaces" -}}
{{- if has $.Release.Namespace (eq $value "watchNamespaces" | ternary $.Values.watchNamespaces $.Values.workload.namespaces) -}}
{{- fail (printf "%s lists the release's own namespace %s. A driver may start pods as any service account of its namespace, so jobs there could become the operator. Give jobs a namespace of their own, or install the release into another one." $value $.Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* All that the operator asks of the API server where its jobs are. docs/rbac.md says what each is for. */}}
{{- define "epochal.operatorRules" -}}
- apiGroups: [epochal.dev]
  resources: [streamingjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [epochal.dev]
  resources: [streamingjobs/status]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, delete]
{{- end -}}

{{/* What it asks for besides where it looks after all namespaces: nodes are in none. */}}
{{- define "epochal.clusterRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create]
{{- end -}}
