// The customer service of the order flow, in TypeScript. It reads Kafka itself, with kafkajs and the registry's Avro, and
// writes to its outbox by a plain INSERT. One transaction for a message: its id, which is there once, and what follows.
import { SchemaRegistry } from "@kafkajs/confluent-schema-registry";
import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy"; // what relays compress with
import pg from "pg";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;

const { FLOW, DATABASE_URL, KAFKA_BROKERS, SCHEMA_REGISTRY_URL } = process.env as Record<string, string>;
const pool = new pg.Pool({ connectionString: DATABASE_URL });
const registry = new SchemaRegistry({ host: SCHEMA_REGISTRY_URL });
const kafka = new Kafka({ brokers: KAFKA_BROKERS.split(","), logLevel: logLevel.ERROR, retry: { retries: 20, maxRetryTime: 500 } });
const consumer = kafka.consumer({ groupId: `${FLOW}.customer` });

const text = (header: unknown) => (header === undefined ? "" : String(header));

async function handle(payload: Buffer, headers: Record<string, unknown>) {
  if (text(headers["ce_type"]) !== "troupe.order.OrderCompleted") return;
  const order = await registry.decode(payload);
  const db = await pool.connect();
  try {
    await db.query("BEGIN");
    const first = await db.query("INSERT INTO inbox (id) VALUES ($1) ON CONFLICT DO NOTHING", [text(headers["ce_id"])]);
    if (first.rowCount === 1) {
      const inherits = { ce_correlationid: text(headers["ce_correlationid"]), ce_causationid: text(headers["ce_id"]) };
      await db.query("INSERT INTO troupe.outbox (topic, key, type, headers, payload) VALUES ($1, $2, 'SendMail', $3, $4)", [
        `${FLOW}.mail.commands`, order.order_id, inherits,
        Buffer.from(JSON.stringify({ customer: order.customer_id, text: `parcel ${order.shipment_id} is on its way` })),
      ]);
    }
    await db.query("COMMIT");
  } catch (error) {
    await db.query("ROLLBACK");
    throw error; // kafkajs delivers the message again
  } finally {
    db.release();
  }
}

await consumer.connect();
await consumer.subscribe({ topic: `${FLOW}.order.events`, fromBeginning: true });
await consumer.run({ eachMessage: ({ message }) => handle(message.value!, message.headers ?? {}) });
