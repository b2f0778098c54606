/* The flush epochs of docs/flush_elision.md (E1 to E5), as a model for Spin: writes that complete at any moment, flushes
 * on two queues that are dispatched, succeed or fail in any order, syncs that elide, join or issue. Checked: a sync that
 * returns 0 finds every write that its file was told of before the call on the medium; every sync returns.
 *
 * The device. A write is in the cache from its completion on. A flush is about what is in the cache when it reaches the
 * device, and is carried out later at once: with success that is on the medium, unless it was lost before; with a failure
 * what was not on the medium is lost, and no other flush tells (a file's error is reported to one fsync only). Then its
 * completion is reported, and completions overtake each other. A power cut needs no process of its own: it may come right
 * after a sync has returned, so what is not on the medium then is gone.
 *
 * Planted bugs, one per run, with -DBUG_...; tests/model/check.sh says which and expects each to be found.
 */
#define WRITES 2
#define FLUSHES 3          /* tickets 1 to FLUSHES; bounds the state space, not the protocol */
#define QUEUES 2
#define FILE_OF(w) (w)
#define FILES 2

/* The ledger. */
byte issued = 0;
byte durable = 0;
bool failed = false;
byte asked = 0;            /* flushes asked for and not dispatched: 0 or 1 */
bool reported[FLUSHES + 1];    /* reported with success */
byte bound[FLUSHES + 1];   /* the newest ticket when it was reported */

/* Each file. */
byte need[FILES];
bool told[WRITES];         /* the user knows that the write has completed */

/* The device. */
bool in_cache[WRITES];
byte covers[FLUSHES + 1];  /* bit per write: in the cache when the flush arrived */
byte on_medium = 0;        /* bit per write */
byte lost = 0;

bool finished[FILES];
bool in_flight[QUEUES];    /* C1: one flush per queue */

#ifdef BUG_LIST
byte waiting_on_list = 0;  /* bit per file: stands on the list of the flush that is next dispatched */
byte released = 0;
byte list_of[FLUSHES + 1];
#endif

inline record_need(file, value) {
  if
  :: need[file] < value -> need[file] = value
  :: else
  fi
}

/* Completion of a write: E2. */
proctype Write(byte w) {
  byte seen;
#ifdef BUG_STALE_BATCH
  seen = issued;           /* loaded once, before this completion was acquired */
#endif
  atomic { in_cache[w] = true }
#ifdef BUG_TOLD_FIRST
  told[w] = true;
#endif
#ifndef BUG_STALE_BATCH
  seen = issued;
#endif
#ifdef BUG_NEED_IS_ISSUED
  atomic { record_need(FILE_OF(w), seen) }
#else
  atomic { record_need(FILE_OF(w), seen + 1) }   /* fetch-max */
#endif
  told[w] = true
}

inline reach_device(t) {
  atomic {
    i = 0;
    do
    :: i < WRITES -> if :: in_cache[i] -> covers[t] = covers[t] | (1 << i) :: else fi; i++
    :: else -> break
    od;
    i = 0
  }
}

/* E3: in ticket order, not beyond a failure, and only when everything has been reported that was dispatched before the
 * flush was reported: one of those may have failed before it. */
inline retire() {
#ifdef BUG_OUT_OF_ORDER
  durable = (!failed && durable < t -> t : durable);
#else
  do
  :: !failed && durable < FLUSHES && reported[durable + 1] ->
#ifndef BUG_LATER_FAILURE
     i = durable + 2;
     do
     :: i <= bound[durable + 1] && reported[i] -> i++
     :: else -> break
     od;
     if :: i <= bound[durable + 1] -> break :: else fi;
#endif
     durable++
  :: else -> break
  od;
  i = 0
#endif
}

/* A hardware queue's flush machine. */
proctype Queue(byte q) {
  byte t;
  byte i;
  bool succeeded;
end:
  do
     /* E1: the ticket first, then the device. Other queues may get a flush of their own in between. */
#ifdef BUG_PUBLISH_FIRST
  :: atomic { asked > 0 && !in_flight[q] && !in_flight[1 - q] && issued < FLUSHES -> asked = 0; in_flight[q] = true }
     reach_device(issued + 1);
     atomic { issued++; t = issued }
#else
  :: atomic {
       asked > 0 && !in_flight[q] && issued < FLUSHES -> asked = 0; in_flight[q] = true;
       issued++; t = issued;
#ifdef BUG_LIST
       list_of[t] = waiting_on_list; waiting_on_list = 0
#endif
     }
     reach_device(t);
#endif
     if
     :: atomic { on_medium = on_medium | (covers[t] & ~lost); succeeded = true }
     :: atomic { lost = lost | (covers[t] & ~on_medium); succeeded = false }
     fi;
     if
     :: atomic {     /* reported: success */
          succeeded ->
#ifdef BUG_LIST
          released = released | list_of[t];
#endif
          reported[t] = true;
          bound[t] = issued;
          retire();
          in_flight[q] = false; t = 0
        }
     :: atomic {     /* reported: failure, E4 */
          !succeeded ->
#ifdef BUG_DURABLE_ON_FAILURE
          reported[t] = true;
          bound[t] = issued;
          retire();
#else
#ifdef BUG_FORGET_FAILURE
          reported[t] = true;   /* the ticket is over and the next flush counts again */
          durable = (durable < t -> t : durable);
          need[0] = 0; need[1] = 0;
#else
          failed = true;
#endif
#endif
          in_flight[q] = false
        }
     fi
  od
}

/* Two queues may be asked at once: E5's "asked for and not dispatched" is one for the leaf. */
inline ask() { asked = 1 }

/* fdatasync of a file: step 2 (steps 0 and 1 are the filesystem's). */
proctype Sync(byte file) {
  bool before[WRITES];
  byte wants;
  byte i;
  bool ok;
  atomic {
    i = 0;
    do
    :: i < WRITES -> before[i] = (told[i] && FILE_OF(i) == file); i++
    :: else -> break
    od;
    i = 0
  }
  wants = need[file];
#ifdef BUG_ALWAYS_ELIDE
  ok = true;
#else
  if
  :: durable >= wants -> ok = true                                   /* elide */
  :: else ->
     atomic {
       if
       :: durable >= wants
       :: durable < wants && failed
       :: durable < wants && !failed && wants <= issued               /* join: a flush in flight covers it */
       :: durable < wants && !failed && wants > issued ->
#ifdef BUG_LIST
          waiting_on_list = waiting_on_list | (1 << file);
#endif
          ask()                                                       /* issue, or join what was asked for */
       fi
     }
#ifdef BUG_JOINER_RETURNS
     if
     :: wants <= issued -> ok = true; goto answer
     :: else
     fi;
#endif
#ifdef BUG_LIST
     atomic { (released & (1 << file)) != 0 || failed || issued == FLUSHES -> ok = ((released & (1 << file)) != 0) };
#else
     /* E3: released by durable >= need; E4: otherwise by the failure. The bound of the model is no answer. */
     atomic { durable >= wants || failed || issued == FLUSHES -> ok = (durable >= wants) }
#endif
  fi;
#endif
#ifdef BUG_JOINER_RETURNS
answer:
#endif
  atomic {
    if
    :: ok ->
       i = 0;
       do
       :: i < WRITES -> assert(!before[i] || (on_medium & (1 << i)) != 0); i++
       :: else -> break
       od
    :: else
    fi;
    finished[file] = true
  }
}

/* Somebody else's flushes, so that tickets are taken at any moment on both queues. */
proctype Others() {
  byte n = 0;
  do
  :: n < 1 -> atomic { if :: !failed -> ask() :: else fi }; n++
  :: break
  od
}

init {
  atomic {
    run Write(0); run Write(1);
    run Queue(0); run Queue(1);
    run Others()
  }
  /* A sync of each file at any moment, and a second one of the first. */
  atomic { run Sync(0); run Sync(1) }
  finished[0];
  run Sync(0)
}
