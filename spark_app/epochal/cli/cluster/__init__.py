"""Jobs on a cluster, for the command line. Needs the rights of the person who asks, and neither operator nor driver."""
