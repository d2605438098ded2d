"""The host process of virtual clusters.

`python -m odradek_testkit.virtual_clusters` reads one line of JSON from standard input, with
`settings`, the settings of the clusters by Kafka's names, and `after`, the highest number that a
cluster has had before. It prints one line with the address for orders, and ends when standard input
is closed.
"""

from __future__ import annotations

import gc

from odradek_broker.platform.quick_start import import_libraries

# Garbage collection is off during the imports, because imported modules are never garbage.
gc.disable()
import_libraries()

from odradek_testkit.virtual_clusters.program import main

main()
