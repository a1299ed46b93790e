"""Features of whole data sets: computed in resumable blocks, written to files, searched for neighbours."""
