"""What every other package uses: checks of arguments, files, HTML, compilers, threads and processes."""
