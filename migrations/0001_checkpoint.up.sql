-- How far each view has come on each partition, and what it could not take in.
CREATE TABLE checkpoint (
    view text NOT NULL,                  -- <view>_v<N>
    partition integer NOT NULL,
    position bigint NOT NULL,            -- the last sequence that is in the view; every earlier one is in it or parked
    log_created timestamptz NOT NULL,    -- the log that the position is of
    unclean_starts integer NOT NULL DEFAULT 0, -- starts since the last orderly end: above 0, an event may have killed us
    PRIMARY KEY (view, partition)
);

CREATE TABLE attempt (
    view text NOT NULL,
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    tries integer NOT NULL,              -- counted before each try, so that a crash counts too
    PRIMARY KEY (view, partition, sequence)
);

CREATE TABLE parked (
    view text NOT NULL,
    partition integer NOT NULL,
    sequence bigint NOT NULL,
    aggregate text NOT NULL,             -- <account>.<noun>.<id>
    reason text NOT NULL,
    parked_at timestamptz NOT NULL,
    PRIMARY KEY (view, partition, sequence)
);
CREATE INDEX parked_aggregate ON parked (view, partition, aggregate);
