"""The shipping service of the order flow, in Python. It knows HTTP and its own Postgres; its ambassador knows Kafka and Avro.

One transaction: the shipment by the Idempotency-Key, and a command for the courier, by a plain INSERT into the outbox.
"""
import json
import os
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pg8000.native

FLOW, URL = os.environ["FLOW"], urllib.parse.urlsplit(os.environ["DATABASE_URL"])


class Shipping(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if order["customer_id"] == "c-far":
            return self.answer(422, {"order_id": order["order_id"], "reason": "no road"})
        db = pg8000.native.Connection(URL.username, URL.hostname, URL.path[1:], URL.port or 5432, URL.password)
        try:
            db.run("BEGIN")
            new = db.run("INSERT INTO shipments (key, order_id) VALUES (:key, :id) ON CONFLICT DO NOTHING RETURNING id",
                         key=self.headers["Idempotency-Key"], id=order["order_id"])
            if new:
                db.run("INSERT INTO troupe.outbox (topic, key, type, headers, payload) VALUES (:t, :k, 'CollectParcel', :h, :p)",
                       t=f"{FLOW}.courier.commands", k=order["order_id"], p=json.dumps({"order_id": order["order_id"]}).encode(),
                       h=json.dumps({"ce_correlationid": self.headers["ce-correlationid"], "ce_causationid": self.headers["ce-id"]}))
            id = db.run("SELECT id FROM shipments WHERE key = :key", key=self.headers["Idempotency-Key"])[0][0]
            db.run("COMMIT")
        finally:
            db.close()
        self.answer(200, {"order_id": order["order_id"], "shipment_id": f"s-{id}"})

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Shipping).serve_forever()
