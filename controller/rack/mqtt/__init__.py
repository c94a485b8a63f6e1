"""The rack API over MQTT: topics, messages, schemas, the broker and the connection to it."""
