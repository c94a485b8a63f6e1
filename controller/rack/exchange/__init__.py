"""What goes in and out of a rack over HTTP: run directories, logs of jobs, traces; and who may have it."""
