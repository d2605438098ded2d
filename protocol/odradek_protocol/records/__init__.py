"""Record batches, format version 2: headers, records, building, checking."""
