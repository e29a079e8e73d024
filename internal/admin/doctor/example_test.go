package doctor_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin/doctor"
)

// ExampleExamine finds problems before a service is rolled out.
func ExampleExamine() {
	check := func(ctx context.Context, database *pgx.ConnConfig, brokers []string) error {
		r, err := doctor.Examine(ctx, doctor.Config{
			Database: database, Brokers: brokers, Flow: "order", Parts: []doctor.Part{doctor.Participant, doctor.Sagas},
		})
		if err != nil {
			return err
		}
		if err := r.Text(os.Stdout, nil); err != nil {
			return err
		}
		if !r.OK() {
			return fmt.Errorf("%d findings would stop the service", r.Count(doctor.Failure))
		}
		return nil
	}
	_ = check
}

func ExampleReport_Text() {
	var r doctor.Report
	r.Ok("server", "Postgres 17.2")
	r.Warn("clock", "the database's is 7s ahead of this machine's", "keep both by a time service")
	_ = r.Text(os.Stdout, nil)
	// Output:
	// ok       server       Postgres 17.2
	// warning  clock        the database's is 7s ahead of this machine's
	//                       → keep both by a time service
}
