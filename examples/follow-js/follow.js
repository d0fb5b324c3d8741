// Follow the routes from JavaScript: `node follow.js [name]`, with the servers in STEER_NATS_URL.
//
// Records of a version come first, its manifest closes it: what came is held back until then, so what is served is
// never a mixture. The digest tells whether all is there; where it differs, everything is loaded anew. With a name,
// each version is acknowledged. One line of JSON for each version goes to the standard output.
import { createHash } from "node:crypto";
import { DeliverPolicy, jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const MANIFEST = "steer.route.manifest";
const MODULUS = 1n << 256n;
const name = process.argv[2];

function term(subject, payload) {
  const hash = createHash("sha256").update(subject).update(Buffer.from([0])).update(payload).digest("hex");
  return BigInt(`0x${hash}`);
}

// What cannot be read counts in the digest, but routes nothing.
function parsed(payload) {
  try {
    return JSON.parse(Buffer.from(payload).toString());
  } catch {
    return undefined;
  }
}

export class RouteTable {
  constructor() {
    this.records = new Map(); // subject -> { term, record }
    this.waiting = [];
    this.sum = 0n;
    this.version = 0;
  }

  // Take one message; the manifest where it closes a version, else undefined.
  take(subject, payload, deleted) {
    if (subject !== MANIFEST) {
      this.waiting.push([subject, payload, deleted]);
      return undefined;
    }
    const manifest = parsed(payload);
    if (!manifest) return undefined;
    for (const each of this.waiting.splice(0)) this.put(...each);
    this.version = manifest.version;
    return manifest;
  }

  put(subject, payload, deleted) {
    const before = this.records.get(subject);
    if (before) this.sum = (this.sum - before.term + MODULUS) % MODULUS;
    this.records.delete(subject);
    if (deleted) return;
    const each = { term: term(subject, payload), record: parsed(payload) };
    this.records.set(subject, each);
    this.sum = (this.sum + each.term) % MODULUS;
  }

  get digest() {
    return this.sum.toString(16).padStart(64, "0");
  }

  get hosts() {
    const subjects = [...this.records.keys()].filter((subject) => subject.startsWith("steer.route.host."));
    const records = subjects.map((subject) => this.records.get(subject).record).filter((record) => record);
    return records.sort((a, b) => (a.hostname < b.hostname ? -1 : 1));
  }
}

// Until the digest differs, which is when everything has to be loaded anew.
async function follow(nc, apply) {
  const options = { filter_subjects: "steer.route.>", deliver_policy: DeliverPolicy.LastPerSubject };
  const consumer = await jetstream(nc).consumers.get("STEER", options);
  const table = new RouteTable();
  const messages = await consumer.consume();
  for await (const message of messages) {
    const deleted = message.headers?.get("Steer-Operation") === "delete";
    const manifest = table.take(message.subject, message.data, deleted);
    if (!manifest) continue;
    if (manifest.digest === table.digest) apply(table);
    // During a load a version that is not closed yet may have been overlapped: the next manifest settles it.
    else if (message.info.pending === 0) return messages.stop();
  }
}

const nc = await connect({ servers: (process.env.STEER_NATS_URL ?? "nats://127.0.0.1:4222").split(","), maxReconnectAttempts: -1 });
let served = { version: 0, digest: "" };

function acknowledge() {
  if (name) nc.publish(`steer.live.proxy.${name}`, JSON.stringify({ ...served, error: "", demand: {} }));
}

function apply(table) {
  const endpoints = table.hosts.map((host) => [host.hostname, host.routes.flatMap((route) => route.endpoints.map((e) => e.address))]);
  served = { version: table.version, digest: table.digest };
  console.log(JSON.stringify({ ...served, hosts: Object.fromEntries(endpoints) }));
  acknowledge();
}

const timer = setInterval(acknowledge, 5000);
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, async () => {
    clearInterval(timer);
    await nc.close();
  });
}
while (!nc.isClosed()) await follow(nc, apply);
