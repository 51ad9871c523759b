"""The tools, measured with what recorded agents did."""
