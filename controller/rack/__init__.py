"""The headless controller: queues the jobs of a rack, leases ports to them, runs them concurrently, stores their results.

Pure: job (states of a job), dispatch (which job starts when, on which ports), agent_pool (which agent's connection
belongs to which run). Shells: store (SQLite, files), daemon (the loop), gateways (MQTT, HTTP, OpenTelemetry). The rack
never decides how a run proceeds: each job is a `controller.session.Session` over the agents that it leases.
"""
