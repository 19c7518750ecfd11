CREATE TABLE workload_list_v1 (
    id uuid PRIMARY KEY,
    account uuid NOT NULL,
    kind text NOT NULL,
    category text NOT NULL,
    provider text NOT NULL,
    display_name text NOT NULL,
    object_name text NOT NULL,
    owner_id uuid NOT NULL,
    owner_name text NOT NULL,
    job_type text,
    schedule_type text,
    queue text,
    state text NOT NULL,
    reason text NOT NULL,
    trigger text NOT NULL,
    since timestamptz NOT NULL,          -- when the state was entered
    revision integer NOT NULL,
    replicas_desired integer NOT NULL,
    replicas_ready integer NOT NULL,
    nodes json NOT NULL,                 -- list of names
    resources json NOT NULL,             -- {name: quantity}
    gpu text,
    model text,
    route_name text,
    endpoint text,
    labels json NOT NULL,
    locked_until timestamptz,
    cost_micro_points bigint NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    deleted boolean NOT NULL,
    spec json NOT NULL,                  -- what is wanted now
    revisions json NOT NULL,             -- [{revision, spec, at}]
    exit_code integer,
    log_tail json NOT NULL,              -- the last lines of a process that ended badly
    partition integer NOT NULL,
    sequence bigint NOT NULL,            -- the last event in the row
    suspended boolean NOT NULL
);
-- The default sort, in one account and for one owner.
CREATE INDEX workload_list_v1_account ON workload_list_v1 (account, created_at DESC, id DESC) WHERE NOT deleted;
CREATE INDEX workload_list_v1_owner ON workload_list_v1 (account, owner_id, created_at DESC, id DESC) WHERE NOT deleted;
CREATE INDEX workload_list_v1_all ON workload_list_v1 (created_at DESC, id DESC) WHERE NOT deleted;
CREATE INDEX workload_list_v1_route ON workload_list_v1 (account, route_name) WHERE NOT deleted;
