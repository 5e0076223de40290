"""The agent above a simulated driver of 8 GPUs, in one process; prints the driver's calls when it ends.

``python -m bench.simulated_agent UUIDS SLOTS agent …``: UUIDs and PCI addresses with commas, then the agent's words.
"""

import json
import sys

from nodeguard.__main__ import main
from nodeguard.sim.driver import SimulatedDriver

if __name__ == "__main__":
    uuids, slots = (words.split(",") for words in sys.argv[1:3])
    with SimulatedDriver.at(slots, uuids) as driver:
        code = main(sys.argv[3:])
        print(json.dumps(driver.calls))
    sys.exit(code)
