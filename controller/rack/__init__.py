"""The headless controller: takes jobs of a rack, queues them, leases ports to them, runs them side by side, keeps what they left.

Pure: job (states of a job), dispatch (which job starts when, on which ports), agent_pool (which agent's connection
belongs to which run). Shells: store (SQLite, files), daemon (the loop), gateways (MQTT, HTTP, OpenTelemetry). The rack
never decides how a run proceeds: each job is a `controller.session.Session` over the agents that it leases.
"""
