"""What `naiad build` can be told to do, a file a subject."""
