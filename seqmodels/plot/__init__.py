"""Plots, in one style. Import what is needed from the modules: importing matplotlib takes a second."""
