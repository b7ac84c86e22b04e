/* What the host and the kernels of a device share: src/entry.rs, src/table.rs and src/route.rs in C.
 * Everything is little-endian. tests/abi.rs compares sizes, offsets and constants with the Rust side. */
#ifndef TIER_ABI_H
#define TIER_ABI_H

#if defined(__CUDACC_RTC__)
/* The run-time compiler has no headers of its own. */
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define TIER_OFFSET(type, field) __builtin_offsetof(type, field)
#else
#include <stddef.h>
#include <stdint.h>
#define TIER_OFFSET(type, field) offsetof(type, field)
#endif

#if defined(__cplusplus)
#define TIER_ASSERT(what) static_assert(what, #what)
#else
#define TIER_ASSERT(what) _Static_assert(what, #what)
#endif

/* Constants of unsigned long type on every compiler: enums could not hold the magic. */
#define TIER_TABLE_MAGIC 0x0042415452454954ull /* "TIERTAB\0" */
#define TIER_ABI_VERSION 1u
#define TIER_MAX_OFFERS 16u
#define TIER_MAX_ROUTE 8u
#define TIER_RECORD_WORDS 16u
#define TIER_RING_HEAD_WORDS 16u

/* An entry: bits 0 and 1 are the kind, 2 and 3 zero, the rest an address (or 16 times a slot number). */
#define TIER_ENTRY_NOTHING 0ull
#define TIER_ENTRY_DEVICE 1ull
#define TIER_ENTRY_HOST 2ull
#define TIER_ENTRY_LOW 15ull
#define TIER_ENTRY_KIND(entry) ((entry) & TIER_ENTRY_LOW)
#define TIER_ENTRY_ADDRESS(entry) ((entry) & ~TIER_ENTRY_LOW)
#define TIER_ENTRY_SLOT(entry) ((uint32_t)((entry) >> 4))

/* Lanes of a routed expert. */
#define TIER_LANE_HIT 0u
#define TIER_LANE_PULL_SPARE 1u
#define TIER_LANE_PULL_SCRATCH 2u
#define TIER_LANE_CPU 3u
#define TIER_LANE_DISK_SPARE 4u
#define TIER_LANE_DISK_SCRATCH 5u
#define TIER_LANE_SKIPPED 6u

/* A table: this, then layers * experts entries, then layers * offers tier_table_offer. */
typedef struct tier_table_header {
    uint64_t magic;
    uint32_t version;
    uint32_t layers;
    uint32_t experts;
    uint32_t offers;
    uint64_t applied;
    uint64_t reserved[4];
} tier_table_header;

/* A batch of edits: this, then n_entries tier_edit_entry, then n_offers tier_edit_offer. */
typedef struct tier_batch_header {
    uint64_t sequence; /* written last */
    uint32_t n_entries;
    uint32_t n_offers;
    uint64_t reserved[6];
} tier_batch_header;

typedef struct tier_edit_entry {
    uint32_t key; /* layer * experts + expert */
    uint32_t reserved;
    uint64_t from;
    uint64_t to;
} tier_edit_entry;

typedef struct tier_table_offer {
    uint64_t value;
    uint64_t fallback;
    uint32_t owner;
    uint32_t reserved;
} tier_table_offer;

typedef struct tier_edit_offer {
    uint16_t layer;
    uint16_t place;
    uint32_t owner;
    uint64_t value;
    uint64_t fallback;
} tier_edit_offer;

typedef struct tier_claim {
    uint16_t place;
    uint16_t reserved;
    uint32_t slot;
} tier_claim;

/* A record of the ring of requests. Order of writing: closing, everything else, and then sequence with a release of
 * system scope. The record of sequence s is number (s - 1) % capacity, after TIER_RING_HEAD_WORDS words. */
typedef struct tier_route_record {
    uint64_t sequence;
    uint64_t applied;
    uint16_t layer;
    uint16_t n;
    uint32_t row;
    uint16_t experts[TIER_MAX_ROUTE];
    uint8_t lanes[TIER_MAX_ROUTE];
    tier_claim claims[TIER_MAX_ROUTE];
    uint64_t reserved;
    uint64_t closing; /* the sequence again */
} tier_route_record;

/* A reply, read after its sequence was seen with an acquire of system scope. The reply to s is number
 * (s - 1) % capacity. */
typedef struct tier_reply_record {
    uint64_t sequence;
    uint32_t status;
    uint32_t n;
    uint64_t sources[TIER_MAX_ROUTE]; /* entries */
    uint64_t reserved[5];
    uint64_t closing; /* the sequence again */
} tier_reply_record;

TIER_ASSERT(sizeof(tier_table_header) == 64);
TIER_ASSERT(TIER_OFFSET(tier_table_header, applied) == 24);
TIER_ASSERT(sizeof(tier_batch_header) == 64);
TIER_ASSERT(TIER_OFFSET(tier_batch_header, n_offers) == 12);
TIER_ASSERT(sizeof(tier_edit_entry) == 24);
TIER_ASSERT(TIER_OFFSET(tier_edit_entry, from) == 8);
TIER_ASSERT(sizeof(tier_table_offer) == 24);
TIER_ASSERT(TIER_OFFSET(tier_table_offer, owner) == 16);
TIER_ASSERT(sizeof(tier_edit_offer) == 24);
TIER_ASSERT(TIER_OFFSET(tier_edit_offer, value) == 8);
TIER_ASSERT(sizeof(tier_claim) == 8);
TIER_ASSERT(sizeof(tier_route_record) == 8 * TIER_RECORD_WORDS);
TIER_ASSERT(TIER_OFFSET(tier_route_record, experts) == 24);
TIER_ASSERT(TIER_OFFSET(tier_route_record, lanes) == 40);
TIER_ASSERT(TIER_OFFSET(tier_route_record, claims) == 48);
TIER_ASSERT(TIER_OFFSET(tier_route_record, closing) == 120);
TIER_ASSERT(sizeof(tier_reply_record) == 8 * TIER_RECORD_WORDS);
TIER_ASSERT(TIER_OFFSET(tier_reply_record, sources) == 16);
TIER_ASSERT(TIER_OFFSET(tier_reply_record, closing) == 120);

#endif
