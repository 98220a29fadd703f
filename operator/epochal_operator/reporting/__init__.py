"""What people see of a job: status, conditions, metrics, logs. Pure but for counting; nothing here acts."""
