"""Files a user writes -> typed values: rig, topology, schedules, fabric, scenario."""
