// Goroutines, collections, threads that end, signals, a child, and a fault that is recovered.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sort"
	"sync"
	"syscall"
	"time"
)

func main() {
	var wait sync.WaitGroup
	var lock sync.Mutex
	sums := map[int]int{}
	for g := 0; g < 8; g++ {
		wait.Add(1)
		go func(g int) {
			defer wait.Done()
			all := make([][]byte, 0)
			sum := 0
			for i := 0; i < 20000; i++ {
				b := make([]byte, 100+i%900)
				b[i%100] = byte(i)
				all = append(all, b)
				sum += int(b[i%100])
				if i%5000 == 0 {
					runtime.GC()
				}
			}
			lock.Lock()
			sums[g] = sum + len(all)
			lock.Unlock()
		}(g)
	}
	for i := 0; i < 20; i++ {
		go func() { runtime.LockOSThread(); time.Sleep(time.Millisecond) }()
	}
	wait.Wait()
	keys := []int{}
	for k := range sums {
		keys = append(keys, k)
	}
	sort.Ints(keys)
	for _, k := range keys {
		fmt.Println(k, sums[k])
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-c)
	out, err := exec.Command("/bin/echo", "child").Output()
	fmt.Println(string(out), err)
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		var p *int
		fmt.Println(*p)
	}()
	os.WriteFile(os.Args[1], []byte("hello"), 0644)
	b, _ := os.ReadFile(os.Args[1])
	fmt.Println(string(b))
}
