// What the Node scripts share: arguments, the check of durability, the cycle itself and the one line of output.

import { createRequire } from 'node:module';
import { performance } from 'node:perf_hooks';
import pg from 'pg';

/** A run without any completion for this long has failed. */
const STALL_MS = 60_000;
/** Connections of the producers. On two cores, 4 to 32 made no difference; the rest of the server's is for workers. */
export const PRODUCER_CONNECTIONS = 16;

/** Reads `URL WORKERS JOBS [MODE]`. */
export function readArguments(modes) {
  const [url, workers, jobs, only] = process.argv.slice(2);
  const count = (text, name) => {
    if (!/^[1-9]\d*$/.test(text ?? '')) throw new Error(`${name} must be a whole number above 0, not ${text}`);
    return Number(text);
  };
  if (!/^postgres(ql)?:\/\//.test(url ?? '')) {
    throw new Error(`usage: ${process.argv[1]} POSTGRESQL_URL WORKERS JOBS [${modes.join('|')}]`);
  }
  if (only !== undefined && !modes.includes(only)) throw new Error(`no mode ${only}; there are: ${modes.join(', ')}`);
  return { url, workers: count(workers, 'WORKERS'), jobs: count(jobs, 'JOBS'), modes: only ? [only] : modes };
}

/** The version of an installed package. */
export function versionOf(name) {
  const require = createRequire(import.meta.url);
  const folder = require.resolve.paths(name).map((base) => `${base}/${name}/package.json`);
  for (const file of folder) {
    try {
      return require(file).version;
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
  throw new Error(`${name} is not installed; run npm install in ${import.meta.dirname}`);
}

/** A connection of the bench's own, to check settings and results with. Refuses a server that may lose commits. */
export async function openReader(url) {
  const reader = new pg.Client({ connectionString: url });
  await reader.connect();
  for (const name of ['synchronous_commit', 'fsync']) {
    const { rows } = await reader.query(`SHOW ${name}`);
    if (rows[0][name] !== 'on') {
      await reader.end();
      throw new Error(`${name} is ${rows[0][name]}: figures would not be comparable; set it to on`);
    }
  }
  return reader;
}

/**
 * Vacuums and analyses the tables of a schema, as a server that has been in use for a while has done by itself. A
 * fresh database has no statistics yet, and some plans on it read every job that ever was.
 */
export async function tidy(reader, schema) {
  const { rows } = await reader.query(
    `SELECT string_agg(oid::regclass::text, ', ') AS tables FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r'`,
    [schema],
  );
  await reader.query(`VACUUM (ANALYZE) ${rows[0].tables}`);
}

/**
 * Jobs going round: always 2 * workers of them are between their add and their completion, and a producer adds the
 * next one when its last one completed.
 *
 * The owner tells `completed(ids)` as soon as a completion is committed. First a tenth of `jobs` warms up and `tidy`
 * runs. From then on the clock runs, until `jobs` more have completed. The producers never pause and go on until the
 * last counted completion, so neither a cold start nor an emptying queue is within the measured time.
 */
export class Cycle {
  #workers;
  #jobs;
  #warmup;
  #add;
  #tidy;
  #visible;
  #pending = new Map();
  #early = new Map();
  #latencies = [];
  #seen = 0;
  #added = 0;
  #started;
  #ended = 0;
  #lastSeen = 0;
  #fail;
  #checks = [];

  /**
   * `add` adds one job and resolves to its id once committed. `visible` says whether a reader sees all of these ids
   * as completed; it is asked after each completion where PEERS_CHECK is set (for testing: it costs time).
   */
  constructor({ workers, jobs, add, tidy, visible }) {
    this.#workers = workers;
    this.#jobs = jobs;
    this.#warmup = Math.ceil(jobs / 10);
    this.#add = add;
    this.#tidy = tidy;
    this.#visible = process.env.PEERS_CHECK ? visible : undefined;
  }

  /** All jobs that were added, counted or not. */
  get added() {
    return this.#added;
  }

  /** Tells of a failure that no completion will follow. */
  failed(error) {
    this.#fail?.(error);
  }

  completed(ids) {
    const now = performance.now();
    if (this.#visible) {
      const check = this.#visible(ids).then((visible) => {
        if (!visible) throw new Error(`the completion of ${ids} was told before it was visible`);
      });
      check.catch((error) => this.failed(error));
      this.#checks.push(check);
    }
    for (const id of ids) {
      const waiting = this.#pending.get(id);
      if (waiting) {
        this.#pending.delete(id);
        this.#count(now, waiting.since);
        waiting.resolve();
      } else {
        // The worker was faster than the answer to the add.
        this.#early.set(id, now);
      }
    }
  }

  #count(now, since) {
    this.#lastSeen = now;
    this.#seen += 1;
    if (this.#seen === this.#warmup) {
      this.#tidy().then(
        () => (this.#started = performance.now()),
        (error) => this.failed(error),
      );
    }
    if (this.#started <= now && this.#latencies.length < this.#jobs) {
      this.#latencies.push(now - since);
      this.#ended = now;
    }
  }

  async #produce() {
    while (this.#latencies.length < this.#jobs) {
      const since = performance.now();
      const id = await this.#add();
      this.#added += 1;
      const early = this.#early.get(id);
      if (early !== undefined) {
        this.#early.delete(id);
        this.#count(early, since);
      } else {
        await new Promise((resolve) => this.#pending.set(id, { since, resolve }));
      }
    }
  }

  async run() {
    this.#lastSeen = performance.now();
    const failure = new Promise((_, reject) => (this.#fail = reject));
    const watch = setInterval(() => {
      if (performance.now() - this.#lastSeen > STALL_MS) {
        this.failed(new Error(`nothing completed for ${STALL_MS / 1000} s, after ${this.#seen} jobs`));
      }
    }, 1_000);
    try {
      const producers = Array.from({ length: 2 * this.#workers }, () => this.#produce());
      await Promise.race([Promise.all(producers), failure]);
      await Promise.all(this.#checks);
    } finally {
      clearInterval(watch);
    }
    if (this.#early.size > 0) throw new Error('jobs completed that nobody added, or twice');
    const seconds = (this.#ended - this.#started) / 1_000;
    const sorted = Float64Array.from(this.#latencies).sort();
    const percentile = (part) => sorted[Math.max(Math.ceil(sorted.length * part) - 1, 0)];
    return {
      seconds: round(seconds, 3),
      jobs_per_second: round(sorted.length / seconds, 1),
      p50_ms: round(percentile(0.5), 3),
      p99_ms: round(percentile(0.99), 3),
    };
  }
}

function round(value, digits) {
  return Number(value.toFixed(digits));
}

/**
 * Measures each mode in a schema of its own, one after the other, and prints the fastest.
 *
 * `measure(mode, schema)` resolves to the figures and the options they were measured with.
 */
export async function report({ peer, version, reader, workers, jobs, modes, measure }) {
  const all = {};
  let best;
  for (const mode of modes) {
    const schema = `bench_${mode.replaceAll('-', '_')}`;
    // Fails where it exists: the database is to be a fresh one.
    await reader.query(`CREATE SCHEMA ${schema}`);
    const { figures, options } = await measure(mode, schema);
    // Its rows are nothing for the autovacuum to work on during the next mode.
    await reader.query(`DROP SCHEMA ${schema} CASCADE`);
    console.error(`${peer} ${mode}: ${JSON.stringify(figures)}`);
    all[mode] = figures.jobs_per_second;
    if (!best || figures.jobs_per_second > best.figures.jobs_per_second) best = { mode, figures, options };
  }
  const options = { mode: best.mode, ...best.options, in_flight: 2 * workers, node: process.versions.node };
  if (modes.length > 1) options.jobs_per_second_by_mode = all;
  process.stdout.write(`${JSON.stringify({ peer, version, workers, jobs, ...best.figures, options })}\n`);
}

/** What both packages declare; they also run on Node 20. */
const NODE = [22, 18];

/** Runs the script; whatever goes wrong ends it with a line on stderr and status 1. */
export async function main(body) {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < NODE[0] || (major === NODE[0] && minor < NODE[1])) {
    console.error(`Node ${process.versions.node} is older than the ${NODE.join('.')} that these packages ask for`);
  }
  try {
    await body();
    process.exit(0);
  } catch (error) {
    console.error(error?.stack ?? String(error));
    process.exit(1);
  }
}
