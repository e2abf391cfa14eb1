"""Code that every other package uses: checks of arguments, files, HTML, compilation, threads and processes."""
