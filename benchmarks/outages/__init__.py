"""What jobs on a real cluster do while something that they need is away, and how long they take to go on after it."""
