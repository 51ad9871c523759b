"""Node memory: the turns of one node of a workflow, in a document of the object store."""
