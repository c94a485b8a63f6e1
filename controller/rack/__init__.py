"""The headless controller: takes jobs of a rack, queues them, leases ports to them, runs them side by side, keeps what they left.

Pure: job (what a job is and may become), dispatch (which job starts when, on which ports), hub (which agent's connection
belongs to which run). Shells: job_store (SQLite). The rack never decides how a run goes: each job is a
`controller.session.Session` over the agents it was given.
"""
