package participant_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// A service with passwords and tokens that expire: pgx calls BeforeConnect for each connection, and franz-go calls the function
// of its mechanism for each login. A participant and a relay call the pool's BeforeConnect for the connections that are not of
// the pool, too.
func Example_identity() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig("postgres://payment@127.0.0.1:5432/payment")
	if err != nil {
		fmt.Println(err)
		return
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		password, err := os.ReadFile("/run/secrets/database-token") // or a call of your provider's library
		c.Password = string(password)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	login := oauth.Oauth(func(context.Context) (oauth.Auth, error) {
		token, err := os.ReadFile("/run/secrets/kafka-token")
		return oauth.Auth{Token: string(token)}, err
	})
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: []string{"127.0.0.1:9092"}, Hop: topics.MustHop("order", "payment"), Kafka: []kgo.Opt{kgo.SASL(login)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p != nil, pool.Ping(ctx))
	// Output: true open /run/secrets/database-token: no such file or directory
}
