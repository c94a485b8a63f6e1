"""`controller.yaml`: the rig, where jobs and results are kept, and the limits of the rack.

Declares the keys of the file, and decides the rules between them. `controller.inputs.rig` reads the rig file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, optional_group, required_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import format_duration, parse_duration_ns, parse_name
from etloop.contract.base.value_form import TEXT, with_form
from etloop.contract.base.value_parsers import file_name, integer, with_bounds, word_of, words, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, read_document
from etloop.contract.protocol.endpoint import is_loopback
from etloop.controller.rack.agent_pool import MOST_SLOTS
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.runs.submitted_code import AllowedCode
from etloop.controller.rack.submissions import DAY_NS, RackLimits, long_time, size
from etloop.runtime.broker_settings import BrokerSettings, default_port

_BASE_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^?#@]*)?"
)
_interval: Final = with_bounds(parse_duration_ns, NS_PER_S // 10, 3600 * NS_PER_S, format_duration)
_port: Final = integer(1, 65535)


@with_form(TEXT)
def _url(text: str) -> str:
    return words(text).rstrip("/")


@dataclass(frozen=True, slots=True)
class Limits(RackLimits):
    """Limits of a rack's jobs and of its machine."""

    slots: int = setting("runs_per_agent", integer(1, MOST_SLOTS), 8)
    """Most runs at once on one agent; also bounded by its number of ports."""
    # A plan of 1,024 ranks takes some hundred megabytes; numpy and Arrow reserve more than they use.
    run_memory_bytes: int = setting("run_memory", size, 16 << 30)
    """Limit of the address space of a run's process."""
    free_disk_bytes: int = setting("free_disk", size, 256 << 20)
    """Free disk space below which no job starts."""
    drain_ns: int = setting("drain", long_time, 60 * NS_PER_S)
    """How long running jobs may continue after SIGTERM."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long artifacts are kept: the oldest are removed first, whichever bound is reached."""

    age_ns: int = setting("age", long_time, 90 * DAY_NS)
    """Highest age of artifacts."""
    size_bytes: int = setting("size", size, 100 << 30)
    """Most bytes of all artifacts together."""
    ended_jobs: int = setting("ended_jobs", integer(1, 10_000_000), 100_000)
    """Ended jobs that stay listed after their artifacts are gone."""
    audit_lines: int = setting("audit_lines", integer(100, 100_000_000), 1_000_000)
    """Lines of the audit log."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """How many requests a rack accepts over MQTT, and how much it retains on the broker."""

    progress_interval_ns: int = setting("progress_interval", _interval, NS_PER_S)
    """Least time between two progress messages of one job."""
    requests_per_s: int = setting("requests_per_s", integer(1, 100_000), 100)
    """Requests that are served per second. As many again are answered "come back later", the rest not at all; both are
    counted."""
    request_bytes: int = setting("request", size, 16 << 20)
    """Largest request."""
    retained_jobs: int = setting("retained_jobs", integer(1, 100_000), 1000)
    """Most recently ended jobs whose state and result the broker retains."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """A rack on one broker."""

    rack: str
    """Name of the rack in its topics."""
    broker: BrokerSettings
    limits: GatewayLimits = GatewayLimits()


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """Files of an encrypted connection to the broker."""

    ca: Path | None = setting("ca", file_name, None)
    """PEM file of the authority that signed the broker's certificate."""
    cert: Path | None = setting("cert", file_name, None)
    """PEM file of the rack's certificate."""
    key: Path | None = setting("key", file_name, None)
    """PEM file of the rack's key."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Broker of the rack API; the password is not read yet."""

    tls: BrokerTls | None = optional_group(BrokerTls, "tls")
    """Encrypt the connection."""
    embedded: bool = setting("embedded", yes_or_no, False)
    """Start a broker at that address, for a rack on one machine."""
    host: str = setting("host", words, "127.0.0.1")
    """Host of the broker."""
    port: int | None = setting("port", _port, None)
    """Port of the broker; 1883, or 8883 with TLS, if left out."""
    username: str = setting("username", words, "")
    """Account of the rack."""
    limits: GatewayLimits = group(GatewayLimits)
    password_file: Path | None = setting("password_file", file_name, None)
    """File with the password of the account."""
    insecure: bool = setting("insecure", yes_or_no, False)
    """Allow a broker on another host without TLS."""

    @property
    def settings(self) -> BrokerSettings:
        """Return address and encryption of the broker, without a password."""
        tls = self.tls or BrokerTls()
        return BrokerSettings(
            host=self.host,
            port=self.port or default_port(encrypted=self.tls is not None),
            username=self.username,
            ca_file=tls.ca,
            cert_file=tls.cert,
            key_file=tls.key,
            tls=self.tls is not None,
        )

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield settings that would expose passwords, and settings that an embedded broker does not have."""
        exposed = self.tls is None and not is_loopback(f"tcp://{self.host}:{self.settings.port}")
        if exposed and not self.insecure and not self.embedded:
            yield Problem(
                "host",
                f"the connection to {self.host} crosses the network unencrypted, passwords included",
                "add tls: {ca: FILE}, or set insecure: true if everybody on this network may command the rack",
            )
        if self.password_file is not None and not self.username:
            remedy = "add username, or leave it out"
            yield Problem("password_file", "a password without a username is never sent", remedy)
        if self.tls is not None and (self.tls.cert is None) != (self.tls.key is None):
            problem = "a certificate needs its key, and a key its certificate"
            yield Problem("tls", problem, "write both cert and key, or neither")
        if self.embedded and self.username:
            remedy = "leave it out, or run Mosquitto"
            yield Problem("username", "the embedded broker knows no users", remedy)
        if self.embedded and self.tls is not None:
            problem = "the embedded broker is for one machine and does not encrypt"
            yield Problem("tls", problem, "run Mosquitto")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Address and limits of the HTTP server for metrics, health, results and uploads."""

    host: str = setting("host", words, "127.0.0.1")
    """Address to listen on."""
    port: int = setting("port", _port, 9420)
    """Port to listen on."""
    insecure: bool = setting("insecure", yes_or_no, False)
    """Allow an address that other machines reach, without encryption."""
    tokens: Path | None = setting("tokens", file_name, None)
    """File of the tokens of clients that may read artifacts and upload. Left out, any client may read and none upload."""
    stated_url: str = setting("url", _url, "")
    """Base URL by which clients reach the server; made of address and port if left out."""
    largest_trace_bytes: int = setting("trace", size, 4 << 30)
    """Largest archive that is uploaded."""
    traces_bytes: int = setting("traces", size, 20 << 30)
    """Most bytes of all uploaded archives together."""

    @property
    def url(self) -> str:
        """Return the base URL by which clients reach the server, without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.stated_url or f"http://{host}:{self.port}"

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield an exposed server, an unusable URL, and limits that contradict each other."""
        if not is_loopback(f"tcp://{self.host}:{self.port}") and not self.insecure:
            is_open = self.tokens is None
            weakness = "does not authenticate clients" if is_open else "is not encrypted"
            consequence = (
                "everybody may read results" if is_open else "tokens may cross this network in clear"
            )
            yield Problem(
                "host",
                f"{self.host} is reachable from other machines, and HTTP {weakness}",
                f"bind a loopback address behind a proxy, or set insecure: true if {consequence}",
            )
        if not _BASE_URL.fullmatch(self.url):
            remedy = "write how clients reach the server, such as https://rack.example/etloop"
            yield Problem("url", "is not the base URL of a web server", remedy)
        if self.largest_trace_bytes > self.traces_bytes:
            problem = (
                f"{self.largest_trace_bytes} bytes are more than all traces may have, {self.traces_bytes}"
            )
            yield Problem("trace", problem, "raise http.traces, or lower http.trace")


@dataclass(frozen=True, slots=True)
class OtelConfig:
    """Destination of OpenTelemetry metrics."""

    endpoint: str = setting("endpoint", _url, "http://127.0.0.1:4318")
    """Base URL of an OTLP/HTTP collector, without the path of a signal."""
    interval_ns: int = setting("interval", _interval, 60 * NS_PER_S)
    """Time between two exports."""
    ca_file: Path | None = setting("ca", file_name, None)
    """PEM file of the authority that signed the collector's certificate."""
    authorization_file: Path | None = setting("authorization_file", file_name, None)
    """File with the value of the header Authorization."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield an unusable URL, or one to which the secret would be sent in clear."""
        url = _BASE_URL.fullmatch(self.endpoint)
        if url is None:
            remedy = "write such as https://collector.example:4318; secrets go into files"
            yield Problem("endpoint", "is not the base URL of an OTLP/HTTP collector", remedy)
        elif (
            url["scheme"] == "http"
            and self.authorization_file is not None
            and not is_loopback(f"tcp://{url['host']}:1")
        ):
            problem = f"the secret of authorization_file would cross the network to {url['host']} unencrypted"
            yield Problem("endpoint", problem, "write https://, or leave authorization_file out")


@dataclass(frozen=True, slots=True)
class RackConfig:
    """Content of `controller.yaml`."""

    rig: Path = required_setting("rig", file_name, Path(), "name the rig file")
    """The rig file."""
    state_dir: Path = required_setting(
        "state_dir", file_name, Path(), "name a directory for jobs and results"
    )
    """Directory of jobs and results."""
    scenario_root: Path = required_setting(
        "scenario_root", file_name, Path(), "name the directory that traces of scenarios lie below"
    )
    """Directory below which the traces of scenarios are."""
    rack: str = setting("rack", parse_name, "rack")
    """Name of the rack, part of every topic."""
    limits: Limits = group(Limits, "limits")
    """Limits of the rack."""
    retention: Retention = group(Retention, "retention")
    """How long artifacts are kept; the oldest are removed first."""
    allowed_code: AllowedCode = group(AllowedCode, "allow")
    """Code that a scenario may contain."""
    log_format: LogFormat = setting("logs", word_of(LogFormat), LogFormat.JSON)
    """Format of log lines."""
    broker: BrokerConfig | None = optional_group(BrokerConfig, "mqtt")
    """The rack API over MQTT; there is none if left out."""
    http: HttpConfig | None = optional_group(HttpConfig, "http")
    """Metrics, health, results and uploads over HTTP; there is no server if left out."""
    otel: OtelConfig | None = optional_group(OtelConfig, "otel")
    """Push metrics to an OpenTelemetry collector; none are pushed if left out."""
    users: Path | None = setting("users", file_name, None)
    """File of users and their rights. Left out, every account may do whatever the broker's ACL permits."""

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield users of a rack that has no accounts."""
        if self.users is not None and (self.broker is None or self.broker.embedded):
            broker = "there is no broker" if self.broker is None else "the embedded broker has no accounts"
            yield Problem(
                "users", f"{broker}, so there are no users", "run Mosquitto with accounts and an ACL"
            )


def parse_rack_config(
    text: bytes, source: str, directory: Path, *, embedded_broker: bool = False
) -> RackConfig:
    """Parse the configuration from a YAML text.

    `source` names the file in messages; paths are relative to `directory`. `embedded_broker` has the effect of `mqtt:
    {embedded: true}`. Raises `ConfigError` with all mistakes of the file.
    """
    file = ConfigFile(source, directory)
    top = read_document(text, file)
    known: dict[str, Any] = {}
    if embedded_broker:
        mqtt = top.section("mqtt")
        mqtt.has("embedded")
        known["broker"] = read_settings(BrokerConfig, mqtt, embedded=True)
        mqtt.close()
    config = read_settings(RackConfig, top, **known)
    top.close()
    file.refuse_mistakes()
    return config
