# One build for all programs, so that the standard library is compiled once. Each program is a target of its own:
#   docker build --target outbox-relay -t outbox-relay .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The context has no repository, so a version must be given: --build-arg VERSION=v0.1.0
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -X github.com/troupe-go/troupe/internal/version.release=$VERSION" -o /out/ \
    ./cmd/outbox-relay ./cmd/troupe ./cmd/demo-order ./cmd/demo-payment ./cmd/demo-inventory ./cmd/demo-shipping

# No shell, no root, nothing to write to. Every program knows "healthcheck", since there is nothing else to ask with.
FROM gcr.io/distroless/static-debian12:nonroot AS base
ENTRYPOINT ["/app"]

FROM base AS outbox-relay
COPY --from=build /out/outbox-relay /app
CMD ["run"]

# Its file is mounted, and named by TROUPE_AMBASSADOR_CONFIG.
FROM base AS ambassador
COPY --from=build /out/troupe /app
ENTRYPOINT ["/app", "ambassador"]

FROM base AS demo-order
COPY --from=build /out/demo-order /app

FROM base AS demo-payment
COPY --from=build /out/demo-payment /app

FROM base AS demo-inventory
COPY --from=build /out/demo-inventory /app

FROM base AS demo-shipping
COPY --from=build /out/demo-shipping /app
