/* Congestion control of a queue pair as a table of functions, which ETLoop's own algorithms and plugins export
 * (docs/congestion_control.md, examples/cc_plugin/). Plain C, no library to link with.
 *
 * A plugin defines
 *
 *     const struct etloop_cc_algorithm *etloop_cc_plugin(void);
 *
 * with C linkage and returns a table that stays valid. Every queue pair that sends data has one state of `state_bytes` zeroed
 * bytes, aligned to 16. Functions get the state, the properties of the queue pair, an event, and the decision, which they
 * change in place. Any function except `init` may be NULL. All calls for one queue pair come from one thread, and `now_ns`
 * never decreases; other queue pairs may be on other threads, so a plugin must not have writable globals. No function may
 * block, allocate, do I/O or throw: they are called in the packet loop.
 *
 * Bytes. `decision.rate_bps` and `etloop_cc_sent.wire_bytes` count all that a packet occupies on its link: preamble, Ethernet,
 * IP, UDP and RoCE headers, payload, ICRC, FCS and the gap between frames: the line rate is the rate of the link. Windows,
 * `acked_bytes`, `in_flight_bytes` and the totals count path MTUs: a packet of any length counts as `mtu_bytes`.
 */
#ifndef ETLOOP_CC_H
#define ETLOOP_CC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with any change of a struct below or of its meaning. Tables of other versions are rejected. */
#define ETLOOP_CC_ABI_VERSION 1u

/* The unit of a parameter; users write values with their unit ("55us", "40Mbps", "10MB", "1/256", "5"). */
enum etloop_cc_unit {
  ETLOOP_CC_COUNT = 0,        /* a whole number */
  ETLOOP_CC_RATIO = 1,        /* a fraction or factor */
  ETLOOP_CC_NANOSECONDS = 2,
  ETLOOP_CC_BYTES = 3,
  ETLOOP_CC_BITS_PER_SECOND = 4
};

/* The requirements of an algorithm, as bits of `etloop_cc_algorithm.needs`. */
enum etloop_cc_need {
  ETLOOP_CC_NEEDS_CNP = 1,  /* receivers answer ECN marks with CNPs */
  ETLOOP_CC_NEEDS_ECN = 2,  /* acknowledgements echo ECN marks */
  ETLOOP_CC_NEEDS_RTT = 4,  /* round-trip times: frequent acknowledgements */
  ETLOOP_CC_NEEDS_INT = 8,  /* in-band telemetry of every hop */
  ETLOOP_CC_NEEDS_CREDITS = 16 /* receivers that grant credits, in addition to decisions */
};

struct etloop_cc_parameter {
  const char *name; /* a word of [a-z0-9_], as in a scenario */
  uint32_t unit;    /* etloop_cc_unit */
  uint32_t reserved;
  double initial; /* default value */
  double least;
  double most;
  const char *meaning;
};

struct etloop_cc_setting {
  const char *parameter;
  double value;
};

/* A named set of parameter values; parameters not named in it keep their `initial`. */
struct etloop_cc_profile {
  const char *name;
  const char *meaning;
  const struct etloop_cc_setting *settings;
  uint32_t setting_count;
  uint32_t reserved;
};

/* Properties of a queue pair. Valid and unchanged from `init` to the end. */
struct etloop_cc_path {
  const double *parameters; /* in the order of `etloop_cc_algorithm.parameters` */
  uint64_t line_rate_bps;
  uint64_t most_window_bytes; /* limit of the transport itself */
  int64_t base_rtt_ns;        /* round trip measured before any load; -1: not measured */
  uint32_t mtu_bytes;         /* payload of a full packet */
  uint32_t packet_bytes;      /* bytes of the same packet on its link */
};

/* Effective until changed, in addition to the transport's own limits. */
struct etloop_cc_decision {
  uint64_t rate_bps;     /* 0: not paced */
  uint64_t window_bytes; /* 0: no window; less than a packet counts as one packet */
};

/* One hop's telemetry as a packet passed, in the order of the hops. */
struct etloop_cc_hop {
  int64_t time_ns; /* on the hop's clock */
  uint64_t line_rate_bps;
  uint64_t sent_bytes; /* by the egress port since it came up */
  uint64_t queue_bytes;
};

/* An acknowledgement of new packets. */
struct etloop_cc_ack {
  int64_t now_ns;
  int64_t rtt_ns; /* since the departure of the packet that requested this acknowledgement; -1: no sample */
  uint64_t acked_bytes;
  uint64_t acked_total_bytes;
  uint64_t sent_total_bytes; /* first transmissions only */
  uint64_t in_flight_bytes;  /* after this acknowledgement */
  uint32_t ecn_marked;       /* 1: a packet since the previous acknowledgement arrived with CE */
  uint32_t hop_count;        /* 0: no telemetry */
  const struct etloop_cc_hop *hops;
};

/* A CNP, a sequence error reported by the receiver (NAK), or a retransmission timeout. */
struct etloop_cc_signal {
  int64_t now_ns;
  uint64_t acked_total_bytes;
  uint64_t sent_total_bytes;
  uint64_t in_flight_bytes;
};

/* Packets handed to the port together. */
struct etloop_cc_sent {
  int64_t now_ns;
  uint64_t wire_bytes;
  uint64_t sent_total_bytes;
  uint64_t in_flight_bytes;
};

struct etloop_cc_algorithm {
  uint32_t abi_version; /* ETLOOP_CC_ABI_VERSION */
  uint32_t table_bytes; /* sizeof(struct etloop_cc_algorithm) */
  const char *name;
  const char *meaning;
  uint32_t needs; /* etloop_cc_need, or-ed */
  uint32_t state_bytes;
  const struct etloop_cc_parameter *parameters;
  const struct etloop_cc_profile *profiles; /* the first one is the default; none: all initial values */
  uint32_t parameter_count;
  uint32_t profile_count;

  /* Check the consistency of parameters that are within their limits: NULL, or the error text. */
  const char *(*check)(const double *parameters);
  void (*init)(void *state, const struct etloop_cc_path *path, int64_t now_ns, struct etloop_cc_decision *decision);
  void (*on_ack)(void *state, const struct etloop_cc_path *path, const struct etloop_cc_ack *ack,
                 struct etloop_cc_decision *decision);
  void (*on_cnp)(void *state, const struct etloop_cc_path *path, const struct etloop_cc_signal *cnp,
                 struct etloop_cc_decision *decision);
  void (*on_nak)(void *state, const struct etloop_cc_path *path, const struct etloop_cc_signal *nak,
                 struct etloop_cc_decision *decision);
  void (*on_timeout)(void *state, const struct etloop_cc_path *path, const struct etloop_cc_signal *timeout,
                     struct etloop_cc_decision *decision);
  void (*on_sent)(void *state, const struct etloop_cc_path *path, const struct etloop_cc_sent *sent,
                  struct etloop_cc_decision *decision);
  /* Called at `next_timer_ns` or later, at `now_ns`. */
  void (*on_timer)(void *state, const struct etloop_cc_path *path, int64_t now_ns, struct etloop_cc_decision *decision);
  /* Return the next time to call `on_timer`; INT64_MAX: never. Called after every other function. */
  int64_t (*next_timer_ns)(const void *state);
};

typedef const struct etloop_cc_algorithm *(*etloop_cc_plugin_function)(void);

#ifdef __cplusplus
}
#endif

#endif
