// What River does for a job on PostgreSQL: insert, fetch, complete.
//
//	river URL CALLERS BATCH JOBS
//
// Prints jobs a second of each step. Inserts go through the client; fetching and completing are the
// statements that its producer and its completer run, without the pauses between them.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

type Args struct {
	Title string         `json:"title"`
	N     map[string]int `json:"payload"`
}

func (Args) Kind() string { return "bench" }

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	must(err)
	return found
}

// Run one step by several callers, each for its part of the jobs; return jobs a second.
func step(callers, batch, jobs int, do func(caller int)) float64 {
	var all sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for range jobs / callers / batch {
				do(caller)
			}
		}()
	}
	all.Wait()
	return float64(jobs/callers/batch*batch*callers) / time.Since(began).Seconds()
}

func main() {
	ctx := context.Background()
	callers, batch, jobs := number(os.Args[2]), number(os.Args[3]), number(os.Args[4])
	config, err := pgxpool.ParseConfig(os.Args[1])
	must(err)
	config.MaxConns = int32(callers)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)
	client, err := river.NewClient(driver, &river.Config{})
	must(err)

	args := Args{Title: "bench", N: map[string]int{"n": 1}}
	many := make([]river.InsertManyParams, batch)
	for place := range many {
		many[place] = river.InsertManyParams{Args: args}
	}
	insert := step(callers, batch, jobs, func(int) {
		if batch == 1 {
			_, err := client.Insert(ctx, args, nil)
			must(err)
		} else {
			_, err := client.InsertMany(ctx, many)
			must(err)
		}
	})

	taken := make([][]int64, callers)
	exec := driver.GetExecutor()
	fetch := step(callers, batch, jobs, func(caller int) {
		found, err := exec.JobGetAvailable(ctx, &riverdriver.JobGetAvailableParams{
			ClientID: "bench", MaxAttemptedBy: 100, MaxToLock: batch, Queue: river.QueueDefault,
		})
		must(err)
		if len(found.Jobs) != batch {
			log.Fatalf("%d jobs instead of %d", len(found.Jobs), batch)
		}
		for _, job := range found.Jobs {
			taken[caller] = append(taken[caller], job.ID)
		}
	})

	complete := step(callers, batch, jobs, func(caller int) {
		ids := taken[caller][:batch]
		taken[caller] = taken[caller][batch:]
		now := time.Now()
		params := &riverdriver.JobSetStateIfRunningManyParams{
			ID:              ids,
			Attempt:         make([]*int, batch),
			ErrData:         make([][]byte, batch),
			FinalizedAt:     make([]*time.Time, batch),
			MetadataDoMerge: make([]bool, batch),
			MetadataUpdates: make([][]byte, batch),
			ScheduledAt:     make([]*time.Time, batch),
			State:           make([]rivertype.JobState, batch),
		}
		for place := range ids {
			params.FinalizedAt[place] = &now
			params.State[place] = rivertype.JobStateCompleted
		}
		done, err := exec.JobSetStateIfRunningMany(ctx, params)
		must(err)
		if len(done) != batch {
			log.Fatalf("%d jobs completed instead of %d", len(done), batch)
		}
	})
	fmt.Printf("%.1f %.1f %.1f\n", insert, fetch, complete)
}
