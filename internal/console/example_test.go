package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/console"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
)

// A service serves the console for its own database at /console, next to its other handlers. Without a token no request can
// act.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool, end, err := shop(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	c, err := console.New(ctx, console.Config{Databases: []console.Database{{Name: "shop", Pool: pool}}, Path: "/console"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	mux := http.NewServeMux()
	mux.Handle("/console/", c)

	r := httptest.NewRequest(http.MethodGet, "/console/dead-letters", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// 200 {
	//   "databases": [
	//     {
	//       "database": "shop",
	//       "causes": [],
	//       "next": ""
	//     }
	//   ],
	//   "works": []
	// }
}

// shop returns a service's database.
func shop(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	url, err := db.CreateDatabase(ctx, "shop", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return pool, func() { pool.Close(); _ = db.Close() }, nil
}
