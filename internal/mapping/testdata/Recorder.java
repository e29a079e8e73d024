import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import io.debezium.embedded.Connect;
import io.debezium.engine.*;
import io.debezium.transforms.outbox.EventRouter;
import java.io.File;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.*;

/**
 * Recorder says what Debezium makes of the rows of a table: its Postgres connector, its EventRouter and Kafka Connect's
 * converters, for each of many configurations. Arguments: properties of the engine (JSON), cases (JSON), how many rows,
 * the file to write. Run by TestRecord.
 */
public class Recorder {
    static final ObjectMapper json = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        json.readTree(new File(args[0])).fields().forEachRemaining(e -> p.setProperty(e.getKey(), e.getValue().asText()));
        int rows = Integer.parseInt(args[2]);
        List<SourceRecord> records = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(rows);
        DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class).using(p).notifying(e -> {
            records.add(e.value());
            all.countDown();
        }).using((success, message, error) -> {
            if (!success) {
                System.err.println(message + " " + error);
                System.exit(1);
            }
        }).build();
        ExecutorService threads = Executors.newSingleThreadExecutor();
        threads.execute(engine);
        if (!all.await(4, TimeUnit.MINUTES)) {
            System.err.println("only " + records.size() + " of " + rows + " rows came");
            System.exit(1);
        }
        ArrayNode cases = (ArrayNode) json.readTree(new File(args[1]));
        for (JsonNode one : cases) {
            ArrayNode results = ((ObjectNode) one).putArray("results");
            for (SourceRecord r : records) {
                results.add(result(one, r));
            }
        }
        json.writerWithDefaultPrettyPrinter().writeValue(new File(args[3]), cases);
        System.exit(0);
    }

    static ObjectNode result(JsonNode one, SourceRecord r) {
        ObjectNode out = json.createObjectNode();
        try (EventRouter<SourceRecord> router = new EventRouter<>()) {
            Map<String, String> options = new HashMap<>();
            one.get("debezium").fields().forEachRemaining(e -> options.put(e.getKey(), e.getValue().asText()));
            router.configure(options);
            SourceRecord copy = r.newRecord(r.topic(), r.kafkaPartition(), r.keySchema(), r.key(), r.valueSchema(), r.value(), r.timestamp(), r.headers().duplicate());
            SourceRecord m = router.apply(copy);
            out.put("topic", m.topic());
            out.put("key", bytes(converter(one.get("key").asText(), true), m.topic(), m.keySchema(), m.key()));
            out.put("payload", bytes(converter(one.get("value").asText(), false), m.topic(), m.valueSchema(), m.value()));
            out.put("partition", m.kafkaPartition());
            out.put("timestamp", options.containsKey("table.field.event.timestamp") ? m.timestamp() : null);
            SimpleHeaderConverter headers = new SimpleHeaderConverter();
            ArrayNode list = out.putArray("headers");
            for (Header h : m.headers()) {
                byte[] value = headers.fromConnectHeader(m.topic(), h.key(), h.schema(), h.value());
                list.add(value == null ? h.key() : h.key() + "=" + new String(value, java.nio.charset.StandardCharsets.UTF_8));
            }
        } catch (Exception e) {
            out.removeAll();
            out.put("error", e.getClass().getSimpleName());
        }
        return out;
    }

    static Converter converter(String name, boolean key) {
        if (name.equals("json")) {
            JsonConverter c = new JsonConverter();
            c.configure(Map.of("schemas.enable", "false"), key);
            return c;
        }
        StringConverter text = new StringConverter();
        text.configure(Map.of(), key);
        return new Converter() { // bytea as BinaryDataConverter has it
            public void configure(Map<String, ?> m, boolean k) { }
            public org.apache.kafka.connect.data.SchemaAndValue toConnectData(String t, byte[] b) { return null; }
            public byte[] fromConnectData(String topic, Schema s, Object v) {
                if (v instanceof byte[] b) return b;
                if (v instanceof java.nio.ByteBuffer b) return b.array();
                return text.fromConnectData(topic, s, v);
            }
        };
    }

    static byte[] bytes(Converter c, String topic, Schema s, Object v) { return c.fromConnectData(topic, s, v); }
}
