// Walks through etcd's Go client against the endpoint given and prints what it is answered, with ids as names, so that two
// servers can be compared line by line.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/clientv3util"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/ordering"
	"go.uber.org/zap"
	"google.golang.org/grpc/status"
)

const patience = 20 * time.Second

var base int64 // the revision before the first write

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func rev(r int64) int64 {
	if r == 0 {
		return 0
	}
	return r - base
}

func fault(err error) string {
	if err == nil {
		return "ok"
	}
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return fmt.Sprintf("%v: %s", e.Code(), e.Error())
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Sprintf("%v: %s", s.Code(), s.Message())
	}
	return err.Error()
}

func limit() context.Context {
	ctx, _ := context.WithTimeout(context.Background(), patience)
	return ctx
}

func short(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%s…(%d)", b[:20], len(b))
	}
	return string(b)
}

func get(c clientv3.KV, what, key string, opts ...clientv3.OpOption) {
	r, err := c.Get(limit(), key, opts...)
	if err != nil {
		say("%s: %s", what, fault(err))
		return
	}
	say("%s: rev %d count %d more %v", what, rev(r.Header.Revision), r.Count, r.More)
	for _, kv := range r.Kvs {
		say("  %s=%s c%d m%d v%d lease %v", kv.Key, short(kv.Value), rev(kv.CreateRevision), rev(kv.ModRevision), kv.Version, kv.Lease != 0)
	}
}

func put(c clientv3.KV, key, value string, opts ...clientv3.OpOption) {
	r, err := c.Put(limit(), key, value, opts...)
	if err != nil {
		say("put %s: %s", key, fault(err))
		return
	}
	if r.PrevKv != nil {
		say("put %s: rev %d prev %s v%d", key, rev(r.Header.Revision), r.PrevKv.Value, r.PrevKv.Version)
	} else {
		say("put %s: rev %d", key, rev(r.Header.Revision))
	}
}

func response(depth string, r *pb.TxnResponse) {
	say("%ssucceeded %v header %v", depth, r.Succeeded, r.Header != nil)
	for _, one := range r.Responses {
		switch x := one.Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			say("%s  range count %d more %v kvs %d header %v", depth, x.ResponseRange.Count, x.ResponseRange.More, len(x.ResponseRange.Kvs), x.ResponseRange.Header.GetRevision() != 0)
			for _, kv := range x.ResponseRange.Kvs {
				say("%s    %s=%s m%d v%d", depth, kv.Key, short(kv.Value), rev(kv.ModRevision), kv.Version)
			}
		case *pb.ResponseOp_ResponsePut:
			say("%s  put rev %d prev %v", depth, rev(x.ResponsePut.Header.GetRevision()), x.ResponsePut.PrevKv.GetValue())
		case *pb.ResponseOp_ResponseDeleteRange:
			say("%s  del %d prev %d rev %d", depth, x.ResponseDeleteRange.Deleted, len(x.ResponseDeleteRange.PrevKvs), rev(x.ResponseDeleteRange.Header.GetRevision()))
		case *pb.ResponseOp_ResponseTxn:
			response(depth+"    ", x.ResponseTxn)
		}
	}
}

func txn(c clientv3.KV, what string, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) {
	r, err := c.Txn(limit()).If(cmps...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		say("txn %s: %s", what, fault(err))
		return
	}
	say("txn %s: rev %d", what, rev(r.Header.Revision))
	response("  ", (*pb.TxnResponse)(r))
}

func keys(c *clientv3.Client) {
	for i := 0; i < 12; i++ {
		put(c, fmt.Sprintf("k/%02d", i), strings.Repeat("x", 12-i))
	}
	put(c, "k/03", "again", clientv3.WithPrevKV())
	put(c, "k/07", "again")
	put(c, "k/07", "thrice", clientv3.WithPrevKV())
	get(c, "one", "k/03")
	get(c, "prefix", "k/", clientv3.WithPrefix())
	get(c, "limit", "k/", clientv3.WithPrefix(), clientv3.WithLimit(3))
	get(c, "limit all", "k/", clientv3.WithPrefix(), clientv3.WithLimit(12))
	get(c, "limit 0 count", "k/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	get(c, "limit count", "k/", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithLimit(2))
	get(c, "keys", "k/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2))
	for _, target := range []clientv3.SortTarget{clientv3.SortByKey, clientv3.SortByCreateRevision, clientv3.SortByModRevision, clientv3.SortByValue} {
		// With a limit etcd sorts only what is within it, unless an order is named as well.
		get(c, fmt.Sprintf("sort %v", target), "k/", clientv3.WithPrefix(), clientv3.WithSort(target, clientv3.SortNone))
		for _, order := range []clientv3.SortOrder{clientv3.SortAscend, clientv3.SortDescend} {
			get(c, fmt.Sprintf("sort %v %v", target, order), "k/", clientv3.WithPrefix(), clientv3.WithSort(target, order), clientv3.WithLimit(4))
		}
	}
	get(c, "sort version", "k/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByVersion, clientv3.SortDescend), clientv3.WithLimit(2))
	get(c, "min mod", "k/", clientv3.WithPrefix(), clientv3.WithMinModRev(base+12), clientv3.WithKeysOnly())
	get(c, "max mod", "k/", clientv3.WithPrefix(), clientv3.WithMaxModRev(base+4), clientv3.WithKeysOnly())
	get(c, "min create", "k/", clientv3.WithPrefix(), clientv3.WithMinCreateRev(base+9), clientv3.WithKeysOnly())
	get(c, "max create", "k/", clientv3.WithPrefix(), clientv3.WithMaxCreateRev(base+3), clientv3.WithKeysOnly())
	get(c, "between", "k/", clientv3.WithPrefix(), clientv3.WithMinModRev(base+3), clientv3.WithMaxModRev(base+9), clientv3.WithLimit(2))
	get(c, "between sorted", "k/", clientv3.WithPrefix(), clientv3.WithMinModRev(base+3), clientv3.WithMaxModRev(base+9), clientv3.WithLimit(2), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	get(c, "count between", "k/", clientv3.WithPrefix(), clientv3.WithMinModRev(base+3), clientv3.WithMaxModRev(base+9), clientv3.WithCountOnly())
	get(c, "first create", "k/", clientv3.WithFirstCreate()...)
	get(c, "last create", "k/", clientv3.WithLastCreate()...)
	get(c, "first rev", "k/", clientv3.WithFirstRev()...)
	get(c, "last rev", "k/", clientv3.WithLastRev()...)
	get(c, "first key", "k/", clientv3.WithFirstKey()...)
	get(c, "last key", "k/", clientv3.WithLastKey()...)
	get(c, "old", "k/", clientv3.WithPrefix(), clientv3.WithRev(base+5))
	get(c, "old count", "k/", clientv3.WithPrefix(), clientv3.WithRev(base+5), clientv3.WithCountOnly())
	get(c, "future", "k/", clientv3.WithPrefix(), clientv3.WithRev(base+5000))
	get(c, "negative", "k/", clientv3.WithPrefix(), clientv3.WithRev(-1))
	get(c, "from", "k/09", clientv3.WithFromKey(), clientv3.WithLimit(2))
	get(c, "range", "k/02", clientv3.WithRange("k/05"))
	get(c, "backwards", "k/05", clientv3.WithRange("k/02"))
	get(c, "same", "k/05", clientv3.WithRange("k/05"))
	get(c, "serializable", "k/05", clientv3.WithSerializable())
	get(c, "all", "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	get(c, "empty", "")
	get(c, "negative limit", "k/", clientv3.WithPrefix(), clientv3.WithLimit(-1), clientv3.WithKeysOnly())
	get(c, "keys sorted by value", "k/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend), clientv3.WithLimit(3))
	put(c, "", "nothing")
	put(c, "k/ignored", "", clientv3.WithIgnoreValue())
	put(c, "k/00", "", clientv3.WithIgnoreValue(), clientv3.WithPrevKV())
	put(c, "k/00", "new", clientv3.WithIgnoreLease())
	put(c, "k/none", "new", clientv3.WithIgnoreLease())
	put(c, "big", strings.Repeat("b", 1400000))
	put(c, "too big", strings.Repeat("b", 1600000))
	get(c, "big", "big")
	d, err := c.Delete(limit(), "k/1", clientv3.WithPrefix(), clientv3.WithPrevKV())
	say("delete: %s %d", fault(err), d.Deleted)
	for _, kv := range d.PrevKvs {
		say("  %s=%s", kv.Key, kv.Value)
	}
	d, err = c.Delete(limit(), "k/1", clientv3.WithPrefix())
	say("delete nothing: %s %d rev %d", fault(err), d.Deleted, rev(d.Header.Revision))
	_, err = c.Delete(limit(), "")
	say("delete the empty key: %s", fault(err))
	binary := "b\x00\xff\xfe"
	put(c, binary, "\x00\x01")
	r, err := c.Get(limit(), binary)
	say("binary: %s %q %q", fault(err), r.Kvs[0].Key, r.Kvs[0].Value)
}

func transactions(c *clientv3.Client) {
	cmp := clientv3.Compare
	put(c, "t/a", "5")
	put(c, "t/b", "6")
	txn(c, "empty", nil, nil, nil)
	txn(c, "nested", []clientv3.Cmp{cmp(clientv3.Value("t/a"), "=", "5")},
		[]clientv3.Op{
			clientv3.OpPut("t/c", "1"), clientv3.OpGet("t/", clientv3.WithPrefix()),
			clientv3.OpTxn([]clientv3.Cmp{cmp(clientv3.Version("t/c"), ">", 0)},
				[]clientv3.Op{clientv3.OpPut("t/then", "1"), clientv3.OpGet("t/", clientv3.WithPrefix(), clientv3.WithLimit(1))},
				[]clientv3.Op{clientv3.OpPut("t/else", "1"), clientv3.OpDelete("t/b", clientv3.WithPrevKV()),
					clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet("t/", clientv3.WithPrefix(), clientv3.WithCountOnly()), clientv3.OpPut("t/deep", "1", clientv3.WithPrevKV())}, nil)}),
			clientv3.OpGet("t/", clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		}, nil)
	txn(c, "compare ranges", []clientv3.Cmp{cmp(clientv3.ModRevision("t/").WithPrefix(), ">", 0), cmp(clientv3.Version("t/").WithPrefix(), "<", 2)},
		[]clientv3.Op{clientv3.OpGet("t/a")}, []clientv3.Op{clientv3.OpGet("t/c")})
	txn(c, "compare an empty range", []clientv3.Cmp{cmp(clientv3.Version("void/").WithPrefix(), "=", 7)},
		[]clientv3.Op{clientv3.OpGet("t/a")}, []clientv3.Op{clientv3.OpGet("t/c")})
	txn(c, "compare a value that is not", []clientv3.Cmp{cmp(clientv3.Value("void"), "!=", "7")},
		[]clientv3.Op{clientv3.OpGet("t/a")}, []clientv3.Op{clientv3.OpGet("t/c")})
	for _, sign := range []string{"=", "!=", "<", ">"} {
		txn(c, "value "+sign, []clientv3.Cmp{cmp(clientv3.Value("t/a"), sign, "5")}, []clientv3.Op{clientv3.OpGet("t/a")}, nil)
		txn(c, "value "+sign+" longer", []clientv3.Cmp{cmp(clientv3.Value("t/a"), sign, "55")}, []clientv3.Op{clientv3.OpGet("t/a")}, nil)
		txn(c, "lease "+sign, []clientv3.Cmp{cmp(clientv3.LeaseValue("t/a"), sign, 0)}, []clientv3.Op{clientv3.OpGet("t/a")}, nil)
		txn(c, "create "+sign, []clientv3.Cmp{cmp(clientv3.CreateRevision("none"), sign, 0)}, []clientv3.Op{clientv3.OpGet("t/a")}, nil)
	}
	txn(c, "missing", []clientv3.Cmp{clientv3util.KeyMissing("none"), clientv3util.KeyExists("t/a")}, []clientv3.Op{clientv3.OpGet("t/a")}, nil)
	txn(c, "put twice", nil, []clientv3.Op{clientv3.OpPut("t/x", "1"), clientv3.OpPut("t/x", "2")}, nil)
	txn(c, "put and delete", nil, []clientv3.Op{clientv3.OpPut("t/x", "1"), clientv3.OpDelete("t/x")}, nil)
	txn(c, "delete twice", nil, []clientv3.Op{clientv3.OpDelete("t/", clientv3.WithRange("t/b")), clientv3.OpDelete("t/", clientv3.WithRange("t/b"))}, nil)
	txn(c, "put twice, nested", nil, []clientv3.Op{clientv3.OpPut("t/x", "1"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("t/x", "1")}, nil)}, nil)
	txn(c, "put in both branches", nil, []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("t/y", "1")}, []clientv3.Op{clientv3.OpPut("t/y", "1")})}, nil)
	txn(c, "get then put", nil, []clientv3.Op{clientv3.OpGet("t/z"), clientv3.OpPut("t/z", "1"), clientv3.OpGet("t/z")}, nil)
	txn(c, "get of the past and future", nil, []clientv3.Op{clientv3.OpGet("t/z", clientv3.WithRev(base+90000))}, nil)
	txn(c, "no key", nil, []clientv3.Op{clientv3.OpPut("", "1")}, nil)
	txn(c, "no lease", nil, []clientv3.Op{clientv3.OpPut("t/l", "1", clientv3.WithLease(77))}, nil)
	txn(c, "no value to keep", nil, []clientv3.Op{clientv3.OpPut("t/new", "1"), clientv3.OpPut("t/nothing", "", clientv3.WithIgnoreValue())}, nil)
	get(c, "undone", "t/new")
	var many []clientv3.Op
	for i := 0; i < 129; i++ {
		many = append(many, clientv3.OpPut(fmt.Sprintf("m/%d", i), "1"))
	}
	txn(c, "129", nil, many, nil)
	r, err := c.Txn(limit()).Then(many[:128]...).Commit()
	say("128: %s %d", fault(err), len(r.Responses))
	get(c, "one revision", "m/", clientv3.WithPrefix(), clientv3.WithLimit(2))
}

func event(e *clientv3.Event) string {
	text := fmt.Sprintf("%v %s=%s c%d m%d v%d", e.Type, e.Kv.Key, short(e.Kv.Value), rev(e.Kv.CreateRevision), rev(e.Kv.ModRevision), e.Kv.Version)
	if e.PrevKv != nil {
		text += fmt.Sprintf(" prev %s m%d", short(e.PrevKv.Value), rev(e.PrevKv.ModRevision))
	}
	return text
}

// expect reads messages until COUNT events came or the watch ended.
func expect(what string, w clientv3.WatchChan, count int) {
	after := time.After(patience)
	say("watch %s", what)
	for count > 0 {
		select {
		case m, ok := <-w:
			if !ok {
				say("  closed")
				return
			}
			if m.Canceled {
				say("  canceled: %v compact %d", m.Err(), rev(m.CompactRevision))
				return
			}
			if m.Created {
				say("  created")
			}
			for _, e := range m.Events {
				say("  %s", event(e))
				count--
			}
		case <-after:
			say("  %d more never came", count)
			return
		}
	}
}

func watches(c *clientv3.Client) {
	head, _ := c.Get(limit(), "x")
	from := head.Header.Revision + 1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	live := c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	m := <-live
	say("created %v events %d", m.Created, len(m.Events))
	deletes := c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithRev(from))
	puts := c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithFilterDelete(), clientv3.WithPrevKV(), clientv3.WithRev(from))
	one := c.Watch(ctx, "w/b", clientv3.WithRev(from))
	put(c, "w/a", "1")
	put(c, "w/b", "2")
	put(c, "w/a", "3")
	_, err := c.Delete(limit(), "w/", clientv3.WithPrefix())
	say("delete %s", fault(err))
	put(c, "w/a", "4")
	put(c, "w/b", "5")
	expect("live", live, 7)
	expect("one, from before", one, 3)
	expect("live deletes", deletes, 2)
	expect("live puts", puts, 5)
	expect("all, from before", c.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(from), clientv3.WithPrevKV()), 7)
	expect("range", c.Watch(ctx, "w/a", clientv3.WithRange("w/b"), clientv3.WithRev(from)), 4)
	expect("only deletes", c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithRev(from), clientv3.WithPrevKV()), 2)
	expect("only puts", c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithFilterDelete(), clientv3.WithRev(from)), 5)

	// a message too large for one: fragments
	var ops []clientv3.Op
	for i := 0; i < 20; i++ {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("f/%02d", i), strings.Repeat("f", 60000)))
	}
	frag := c.Watch(ctx, "f/", clientv3.WithPrefix(), clientv3.WithFragment(), clientv3.WithRev(from))
	r, err := c.Txn(limit()).Then(ops...).Commit()
	say("big transaction %s %d", fault(err), len(r.Responses))
	for i := 0; i < 3; i++ {
		_, err = c.Txn(limit()).Then(ops...).Commit()
	}
	expect("fragments", frag, 80)

	// progress on request
	p := c.Watch(ctx, "progress", clientv3.WithCreatedNotify())
	<-p
	put(c, "elsewhere", "1")
	say("progress %s", fault(c.RequestProgress(ctx)))
	select {
	case m := <-p:
		say("  progress %v events %d caught up %v", m.IsProgressNotify(), len(m.Events), m.Header.Revision >= from)
	case <-time.After(patience):
		say("  no progress")
	}

	// in the future
	now, _ := c.Get(limit(), "x")
	future := c.Watch(ctx, "future", clientv3.WithRev(now.Header.Revision+3))
	put(c, "future", "1")
	put(c, "future", "2")
	put(c, "future", "3")
	put(c, "future", "4")
	expect("future", future, 2)

	// own context
	own, end := context.WithCancel(context.Background())
	w := c.Watch(own, "own", clientv3.WithCreatedNotify())
	<-w
	end()
	_, ok := <-w
	say("after cancel open %v", ok)

	// compaction while watching
	cw := c.Watch(ctx, "cw", clientv3.WithCreatedNotify(), clientv3.WithRev(from))
	<-cw
	for i := 0; i < 5; i++ {
		put(c, "cw", fmt.Sprint(i))
	}
	expect("before compaction", cw, 5)
	now, _ = c.Get(limit(), "cw")
	_, err = c.Compact(limit(), now.Header.Revision)
	say("compact %s", fault(err))
	put(c, "cw", "after")
	expect("after compaction", cw, 1)
	expect("of compacted", c.Watch(ctx, "cw", clientv3.WithRev(from)), 1)
	expect("of the compacted revision itself", c.Watch(ctx, "cw", clientv3.WithRev(now.Header.Revision)), 2)
	_, err = c.Compact(limit(), now.Header.Revision)
	say("compact again %s", fault(err))
	_, err = c.Compact(limit(), now.Header.Revision+100)
	say("compact the future %s", fault(err))
	_, err = c.Compact(limit(), now.Header.Revision+1, clientv3.WithCompactPhysical())
	say("compact physical %s", fault(err))
	_, err = c.Compact(limit(), 0)
	say("compact 0 %s", fault(err))
	get(c, "compacted", "cw", clientv3.WithRev(from))
	txn(c, "compacted", nil, []clientv3.Op{clientv3.OpGet("cw", clientv3.WithRev(from))}, nil)

	// many on one stream
	var wg sync.WaitGroup
	var lock sync.Mutex
	seen := 0
	for i := 0; i < 500; i++ {
		ch := c.Watch(ctx, "many/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
		wg.Add(1)
		go func() {
			defer wg.Done()
			got := 0
			for m := range ch {
				got += len(m.Events)
				if got == 10 {
					lock.Lock()
					seen++
					lock.Unlock()
					return
				}
			}
		}()
	}
	for i := 0; i < 10; i++ {
		if _, err := c.Put(limit(), fmt.Sprintf("many/%d", i), "1"); err != nil {
			say("many %s", fault(err))
		}
	}
	wg.Wait()
	say("500 watches, %d complete", seen)
}

func leases(c *clientv3.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, err := c.Grant(limit(), 600)
	say("grant %s ttl %d", fault(err), g.TTL)
	put(c, "l/1", "1", clientv3.WithLease(g.ID))
	put(c, "l/2", "1", clientv3.WithLease(g.ID))
	get(c, "leased", "l/1")
	t, err := c.TimeToLive(limit(), g.ID, clientv3.WithAttachedKeys())
	sort.Slice(t.Keys, func(i, j int) bool { return string(t.Keys[i]) < string(t.Keys[j]) })
	say("ttl %s granted %d keys %s", fault(err), t.GrantedTTL, t.Keys)
	t, err = c.TimeToLive(limit(), g.ID)
	say("ttl %s granted %d keys %d", fault(err), t.GrantedTTL, len(t.Keys))
	put(c, "l/2", "2") // detaches
	t, _ = c.TimeToLive(limit(), g.ID, clientv3.WithAttachedKeys())
	say("after a put without %s", t.Keys)
	put(c, "l/1", "2", clientv3.WithIgnoreLease())
	put(c, "l/1", "", clientv3.WithIgnoreLease(), clientv3.WithIgnoreValue())
	put(c, "l/1", "", clientv3.WithIgnoreValue(), clientv3.WithLease(g.ID))
	one, err := c.KeepAliveOnce(limit(), g.ID)
	say("once %s ttl %d", fault(err), one.TTL)
	g, err = c.Grant(limit(), 2)
	put(c, "l/1", "1", clientv3.WithLease(g.ID))
	ch, err := c.KeepAlive(ctx, g.ID)
	m := <-ch
	say("alive %s ttl %d", fault(err), m.TTL)
	ls, err := c.Leases(limit())
	say("leases %s %d", fault(err), len(ls.Leases))
	_, err = c.Revoke(limit(), ls.Leases[0].ID)
	say("revoke %s", fault(err))
	c.Revoke(limit(), g.ID)
	for {
		m, ok := <-ch
		if !ok {
			say("keep-alive ended")
			break
		}
		_ = m
	}
	get(c, "gone", "l/", clientv3.WithPrefix())
	_, err = c.Revoke(limit(), g.ID)
	say("revoke again %s", fault(err))
	_, err = c.KeepAliveOnce(limit(), g.ID)
	say("once, revoked %s", fault(err))
	t, err = c.TimeToLive(limit(), g.ID)
	say("ttl of the revoked %s %d", fault(err), t.TTL)
	put(c, "l/3", "x", clientv3.WithLease(g.ID))
	for _, ttl := range []int64{0, -1, 9000000000, 9000000001, 1} {
		g, err := c.Grant(limit(), ttl)
		if err != nil {
			say("grant %d: %s", ttl, fault(err))
			continue
		}
		say("grant %d: ttl %d", ttl, g.TTL)
		c.Revoke(limit(), g.ID)
	}
	l := pb.NewLeaseClient(c.ActiveConnection())
	a, err := l.LeaseGrant(limit(), &pb.LeaseGrantRequest{TTL: 60, ID: 4711})
	say("chosen %s %d", fault(err), a.GetID())
	_, err = l.LeaseGrant(limit(), &pb.LeaseGrantRequest{TTL: 60, ID: 4711})
	say("chosen twice %s", fault(err))
	_, err = l.LeaseGrant(limit(), &pb.LeaseGrantRequest{TTL: 60, ID: -5})
	say("negative %s", fault(err))
	c.Revoke(limit(), -5)
	c.Revoke(limit(), 4711)
	// expiry with a watcher
	short, err := c.Grant(limit(), 1)
	w := c.Watch(ctx, "short", clientv3.WithCreatedNotify(), clientv3.WithPrevKV())
	<-w
	_, err = c.Put(limit(), "short", "1", clientv3.WithLease(short.ID))
	say("short %s", fault(err))
	expect("expiry", w, 2)
}

// observe reads leaders until one has this value: some may be passed over.
func observe(leaders <-chan *clientv3.GetResponse, value string) {
	for r := range leaders {
		if string(r.Kvs[0].Value) == value {
			say("observed %s", value)
			return
		}
	}
	say("%s was never observed", value)
}

func recipes(c *clientv3.Client) {
	s1, err := concurrency.NewSession(c, concurrency.WithTTL(10))
	say("session %s", fault(err))
	s2, err := concurrency.NewSession(c, concurrency.WithTTL(10))
	say("session %s", fault(err))
	m1, m2 := concurrency.NewMutex(s1, "mutex"), concurrency.NewMutex(s2, "mutex")
	say("lock 1 %s", fault(m1.Lock(limit())))
	say("try 2 %v", m2.TryLock(limit()))
	done := make(chan error)
	go func() { done <- m2.Lock(limit()) }()
	owner, err := c.Txn(limit()).If(m1.IsOwner()).Then(clientv3.OpPut("guarded", "1")).Commit()
	say("is owner %s %v", fault(err), owner.Succeeded)
	say("unlock 1 %s", fault(m1.Unlock(limit())))
	say("lock 2 %s", fault(<-done))
	say("try 1 %v", m1.TryLock(limit()))
	say("unlock 2 %s", fault(m2.Unlock(limit())))
	get(c, "nobody", "mutex", clientv3.WithPrefix())
	s1.Close()
	s1, _ = concurrency.NewSession(c, concurrency.WithTTL(10))

	e1, e2 := concurrency.NewElection(s1, "boss"), concurrency.NewElection(s2, "boss")
	_, err = e1.Leader(limit())
	say("leader of none: %v", err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	observed := e1.Observe(ctx)
	say("campaign 1 %s", fault(e1.Campaign(limit(), "one")))
	observe(observed, "one")
	go func() { done <- e2.Campaign(limit(), "two") }()
	say("proclaim %s", fault(e1.Proclaim(limit(), "one again")))
	observe(observed, "one again")
	lead, err := e2.Leader(limit())
	say("leader %s %s", fault(err), lead.Kvs[0].Value)
	say("resign %s", fault(e1.Resign(limit())))
	say("campaign 2 %s", fault(<-done))
	observe(observed, "two")
	say("proclaim of the resigned %v", e1.Proclaim(limit(), "x"))
	s2.Close() // revokes
	_, err = e1.Leader(limit())
	say("leader after close: %v", err)
	s1.Orphan()

	c.Put(limit(), "stm/a", "100")
	c.Put(limit(), "stm/b", "0")
	for _, level := range []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable, concurrency.RepeatableReads, concurrency.ReadCommitted} {
		var wg sync.WaitGroup
		bad := 0
		var lock sync.Mutex
		for i := 0; i < 8; i++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
					var a, b int
					fmt.Sscan(s.Get("stm/a"), &a)
					fmt.Sscan(s.Get("stm/b"), &b)
					s.Put("stm/a", fmt.Sprint(a-1))
					s.Put("stm/b", fmt.Sprint(b+1))
					return nil
				}, concurrency.WithIsolation(level), concurrency.WithPrefetch("stm/a", "stm/b"))
				if err != nil {
					lock.Lock()
					bad++
					lock.Unlock()
				}
			}()
		}
		wg.Wait()
		a, _ := c.Get(limit(), "stm/a")
		b, _ := c.Get(limit(), "stm/b")
		var x, y int
		fmt.Sscan(string(a.Kvs[0].Value), &x)
		fmt.Sscan(string(b.Kvs[0].Value), &y)
		say("stm %v: bad %d sum %d", level, bad, x+y)
	}

	now, _ := c.Get(limit(), "x")
	base = now.Header.Revision // how often transactions were tried again differs
	nk := namespace.NewKV(c.KV, "ns/")
	put(nk, "a", "1")
	put(nk, "b", "1", clientv3.WithPrevKV())
	get(nk, "namespace", "", clientv3.WithPrefix())
	get(nk, "namespace from", "b", clientv3.WithFromKey())
	txn(nk, "namespace", []clientv3.Cmp{clientv3.Compare(clientv3.Value("a"), "=", "1")}, []clientv3.Op{clientv3.OpGet("a"), clientv3.OpDelete("b", clientv3.WithPrevKV())}, nil)
	get(c, "outside", "ns/", clientv3.WithPrefix())
	nw := namespace.NewWatcher(c.Watcher, "ns/")
	head, _ := c.Get(limit(), "x")
	w := nw.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(head.Header.Revision+1))
	put(nk, "c", "2")
	expect("namespace", w, 1)

	for i := 0; i < 2500; i += 100 {
		var ops []clientv3.Op
		for j := 0; j < 100; j++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("mirror/%05d", i+j), "1"))
		}
		c.Txn(limit()).Then(ops...).Commit()
	}
	sync := mirror.NewSyncer(c, "mirror/", 0)
	got, errs := sync.SyncBase(limit())
	total := 0
	for r := range got {
		total += len(r.Kvs)
	}
	say("mirror %d %v", total, <-errs)
	up := sync.SyncUpdates(ctx)
	put(c, "mirror/x", "new")
	expect("mirror", up, 1)

	em, err := endpoints.NewManager(c, "service")
	say("naming %s", fault(err))
	say("add %s", fault(em.AddEndpoint(limit(), "service/1", endpoints.Endpoint{Addr: "127.0.0.1:1"})))
	list, err := em.List(limit())
	say("list %s %d", fault(err), len(list))

	lk, closed, err := leasing.NewKV(c, "leasing/")
	say("leasing %s", fault(err))
	put(lk, "cached", "1")
	get(lk, "leasing", "cached")
	get(lk, "leasing again", "cached")
	put(lk, "cached", "2")
	get(lk, "leasing new", "cached")
	closed()
	ok := ordering.NewKV(c.KV, func(op clientv3.Op, r clientv3.OpResponse, prev int64) error { return errors.New("order") })
	get(ok, "ordering", "ns/a")
}

func cluster(c *clientv3.Client) {
	ml, err := c.MemberList(limit())
	say("members %s %d learner %v", fault(err), len(ml.Members), ml.Members[0].IsLearner)
	say("sync %s %v", fault(c.Sync(limit())), len(c.Endpoints()))
	ep := c.Endpoints()[0]
	st, err := c.Status(limit(), ep)
	say("status %s leader is me %v db %v", fault(err), st.Leader == st.Header.MemberId, st.DbSize > 0)
	al, err := c.AlarmList(limit())
	say("alarms %s %d", fault(err), len(al.Alarms))
	al, err = c.AlarmDisarm(limit(), &clientv3.AlarmMember{})
	say("disarm %s", fault(err))
	_, err = c.Defragment(limit(), ep)
	say("defragment %s", fault(err))
	h, err := c.HashKV(limit(), ep, 0)
	say("hash %s %v", fault(err), h != nil && h.Hash != 0)
	_, err = c.HashKV(limit(), ep, 900000)
	say("hash of the future %s", fault(err))
	_, err = c.HashKV(limit(), ep, 1)
	say("hash of the compacted %s", fault(err))
	_, err = c.MoveLeader(limit(), 1)
	say("move leader %s", fault(err))
	_, err = c.MoveLeader(limit(), st.Leader)
	say("move leader to itself %s", fault(err))
	mc := pb.NewMaintenanceClient(c.ActiveConnection())
	hr, err := mc.Hash(limit(), &pb.HashRequest{})
	say("hash of all %s %v", fault(err), hr.GetHash() != 0)
	rc, err := c.Snapshot(limit())
	say("snapshot %s", fault(err))
	n, err := io.Copy(io.Discard, rc)
	say("read %v %v", err, n > 1000)
	us, err := c.UserList(limit())
	say("users %s %v", fault(err), us != nil && len(us.Users) == 0)
	rs, err := c.RoleList(limit())
	say("roles %s %v", fault(err), rs != nil && len(rs.Roles) == 0)
	_, err = c.Authenticate(limit(), "a", "b")
	say("authenticate %s", fault(err))
}

func main() {
	endpoint := flag.String("endpoint", "127.0.0.1:2379", "")
	ca := flag.String("ca", "", "")
	cert := flag.String("cert", "", "")
	key := flag.String("key", "", "")
	only := flag.String("only", "keys,transactions,watches,leases,recipes,cluster", "")
	flag.Parse()
	config := clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: patience, Logger: zap.NewNop()}
	if *ca != "" {
		text, err := os.ReadFile(*ca)
		if err != nil {
			panic(err)
		}
		config.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		config.TLS.RootCAs.AppendCertsFromPEM(text)
		if *cert != "" {
			pair, err := tls.LoadX509KeyPair(*cert, *key)
			if err != nil {
				panic(err)
			}
			config.TLS.Certificates = []tls.Certificate{pair}
		}
	}
	c, err := clientv3.New(config)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	first, err := c.Get(limit(), "x")
	if err != nil {
		fmt.Println("first:", fault(err))
		os.Exit(1)
	}
	base = first.Header.Revision
	for _, name := range strings.Split(*only, ",") {
		say("== %s", name)
		map[string]func(*clientv3.Client){"keys": keys, "transactions": transactions, "watches": watches, "leases": leases, "recipes": recipes, "cluster": cluster}[name](c)
	}
}
