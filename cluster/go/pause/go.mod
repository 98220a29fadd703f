module epochal/cluster/pause

go 1.25.0
