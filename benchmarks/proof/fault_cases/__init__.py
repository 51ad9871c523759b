"""Faults outside of the program: signals, clocks, machines, locks, full disks, lost servers."""
