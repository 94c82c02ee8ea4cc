// The same as c/chain.c, with goroutines on several threads in place of a forked child.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

func value(index, version int) uint64 { return (uint64(index)*1000003 + uint64(version)) * 2654435761 }

func check(memory []uint64, version int) {
	var group sync.WaitGroup
	for part := 0; part < 4; part++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for index := part; index < len(memory); index += 4 {
				if memory[index] != value(index, version) {
					fmt.Println("word", index, "is wrong")
					os.Exit(70)
				}
			}
		}()
	}
	group.Wait()
}

func main() {
	mebibytes, _ := strconv.Atoi(os.Args[1])
	version := len(os.Args)
	memory := make([]uint64, mebibytes<<20/8)
	for index := range memory {
		memory[index] = value(index, version)
	}
	texts := map[int]string{}
	for number := 0; number < 50000; number++ {
		texts[number] = strconv.Itoa(number)
	}
	check(memory, version)
	runtime.GC()
	for number, text := range texts {
		if strconv.Itoa(number) != text {
			fmt.Println("text", number, "is wrong")
			os.Exit(70)
		}
	}
	if output, err := exec.Command("/bin/echo", "words").Output(); err != nil || string(output) != "words\n" {
		fmt.Println("echo:", string(output), err)
		os.Exit(70)
	}
	check(memory, version)
	if len(os.Args) == 2 {
		fmt.Println("ok chain")
		return
	}
	words := append([]string{os.Args[2], os.Args[1]}, os.Args[3:]...)
	if err := syscall.Exec("/nowhere/nothing", words, os.Environ()); err != syscall.ENOENT {
		fmt.Println("exec of nothing:", err)
		os.Exit(70)
	}
	fmt.Println(words[0], syscall.Exec(words[0], words, os.Environ()))
	os.Exit(70)
}
