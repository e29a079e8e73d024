# The image of a release, from the program that goreleaser has built: .goreleaser.yaml. docker-compose.yml builds from source with /Dockerfile.
FROM gcr.io/distroless/static-debian12:nonroot
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/outbox-relay /app
ENTRYPOINT ["/app"]
CMD ["run"]
