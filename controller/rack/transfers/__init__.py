"""Downloads and uploads of a rack over HTTP: run directories, job logs and traces, and the rights to them."""
