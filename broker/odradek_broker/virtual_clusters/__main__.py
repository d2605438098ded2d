"""The host process of virtual clusters.

`python -m odradek_broker.virtual_clusters` reads one line of JSON from standard input: `settings`,
those of the clusters by Kafka's names, and `after`, the highest number that a cluster had before.
It prints one line with the address for orders, and ends when standard input does.
"""

from __future__ import annotations

import gc

from odradek_broker.platform.quick_start import import_libraries

# Garbage collection is off, because imported modules are no garbage.
gc.disable()
import_libraries()

from odradek_broker.virtual_clusters.program import main

main()
