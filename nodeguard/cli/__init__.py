"""The commands, one file each: parse, wire, print."""

COMMANDS = {
    "agent": "watch this node, and write conditions, an annotation and a taint on its Node",
    "remediate": "move pods away from faulty nodes, within a budget, and give the nodes back when they are well",
    "demo": "break a GPU of a simulated node and show the timeline; needs no GPU and no cluster",
    "rules": "check and test rules, and print their JSON Schema",
    "replay": "run a recording through the rules, as fast as the machine can",
    "record": "write what this node's sources read to a file, for replay",
    "brake": "stop agents from adding taints, for one rule or all, and let them again",
    "incidents": "say what the loop did to which node, when, and why",
    "cleanup": "take every mark of nodeguard out of a cluster",
    "doctor": "say what this node lets the agent see and do, and why not",
    "explain": "say what a rule, a signal or an Xid means",
}
"""Every command and what it does, in the order of ``--help``. Its module is the one of the same name here."""
