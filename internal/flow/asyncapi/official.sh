#!/usr/bin/env bash
# Gives the documents in testdata to AsyncAPI's own parser, and takes the schema that the tests use from the same place.
# Needs node and npm, and the network; the tests need neither. Run it after a change of testdata:
#   go test ./internal/flow/asyncapi -update && internal/flow/asyncapi/official.sh
set -euo pipefail
parser=3.6.0 specs=6.11.1
cd "$(dirname "$0")/testdata"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
npm install --prefix "$dir" --silent --no-audit --no-fund --ignore-scripts "@asyncapi/parser@$parser" "@asyncapi/specs@$specs"
cat >"$dir/parse.cjs" <<'JS'
const { Parser } = require('@asyncapi/parser');
const fs = require('fs');
(async () => {
  let bad = 0;
  for (const file of process.argv.slice(2)) {
    const { document, diagnostics } = await new Parser().parse(fs.readFileSync(file, 'utf8'));
    const errors = diagnostics.filter((d) => d.severity === 0);
    for (const d of diagnostics) console.log(`${file}: severity ${d.severity}: ${d.code}: ${d.path.join('.')}: ${d.message}`);
    console.log(`${file}: ${document && !errors.length ? 'valid' : 'INVALID'}, AsyncAPI ${document?.version()}, ` +
      `${document?.channels().length} channels, ${document?.operations().length} operations, ${document?.messages().length} messages`);
    if (!document || errors.length) bad++;
  }
  process.exit(bad ? 1 : 0);
})();
JS
node "$dir/parse.cjs" ./*.asyncapi.json
gzip -9n <"$dir/node_modules/@asyncapi/specs/schemas/3.0.0-without-\$id.json" >asyncapi-3.0.0.json.gz
cp "$dir/node_modules/@asyncapi/specs/LICENSE" LICENSE.asyncapi
cp "$dir/node_modules/@asyncapi/specs/NOTICE" NOTICE.asyncapi
