"""Real drivers killed with -9 at random moments; what comes out in the end is what an undisturbed run gives."""
