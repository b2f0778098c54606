/* QuiesceRef (blockio/quiesce_ref.h, Q1 to Q3) as a model for Spin, on a machine with store buffers as x86 has them: a
 * thread's stores to its number become visible to others late, in order; its loads are not kept back by them; taking the
 * lock and HeavyBarrier empty the buffer. Two users, who give a reference back themselves or leave that to a third thread
 * (which does not enter: nobody may who holds references), and a closer who freezes while they come and go, and at last,
 * when nobody enters any more, freezes and destroys the object.
 * Checked: nobody is inside, or gets inside, while it is frozen; every freeze returns; nobody touches the object when it is
 * gone.
 *
 * Planted bugs, one per run, with -DBUG_...; tests/model/check.sh expects each to be found.
 */
#define THREADS 3          /* with a number */
#define COMPLETER 2
#define ENTERS 2           /* by user 0; user 1 enters once */
#define NOBODY 255

int number[THREADS];         /* as others see it */
int mine[THREADS];           /* as the thread itself sees it */
chan buffer[THREADS] = [2] of { int };

bool locked = false;       /* the door is shut */
bool mutex = false;
bool barrier_ran = false;
bool drained = false;
int under_lock = 0;

byte handed = 0;           /* references to be given back by the third thread */
byte users = 2;            /* who may still hand over */

/* What the checks go by. */
byte inside = 0;
bool frozen = false;
byte enters_left = ENTERS + 1;
bool gone = false;

inline store(t, value) {
  assert(!gone);
  atomic { buffer[t]!value; mine[t] = value }
}

inline take_lock(t) {
  atomic { (!mutex && (t == NOBODY || empty(buffer[t]))); assert(!gone); mutex = true }
}

inline release_lock() {
  atomic { assert(!gone); mutex = false }
}

/* Q2, Q3. */
inline count() {
  if
  :: locked && barrier_ran && !drained ->
    sum = 2 * under_lock;
    i = 0;
    do
    :: i < THREADS ->
#ifdef BUG_COUNT_PAST_LEAVERS
      atomic { sum = sum + number[i]; i++ }
#else
      atomic { (number[i] % 2 == 0); sum = sum + number[i]; i++ }
#endif
    :: else -> break
    od;
    if
    :: sum == 0 -> drained = true
    :: else
    fi
  :: else
  fi
}

inline enter(t) {
  store(t, mine[t] + 2);
  assert(!gone);
  atomic {
    seen = locked;
    if
    :: !seen -> inside++; assert(!frozen)
    :: else
    fi
  }
  if
  :: seen ->
    store(t, mine[t] - 2);
    do
    :: take_lock(t);
      if
      :: !locked -> atomic { under_lock++; inside++; assert(!frozen) } release_lock(); break
      :: else ->
#ifndef BUG_NO_RECOUNT
        count();
#endif
        release_lock();
        (!locked)
      fi
    od
  :: else
  fi;
  enters_left--
}

inline leave(t) {
  inside--;
  store(t, mine[t] + 1);
  assert(!gone);
#ifdef BUG_LEAVE_WITHOUT_LOOK
  seen = false;
#else
  seen = locked;
#endif
  if
  :: !seen ->
    store(t, mine[t] - 3);
#ifdef BUG_TOUCH_AFTER_LEAVING
    assert(!gone)
#endif
  :: else ->
    store(t, mine[t] - 1);
    take_lock(t);
    under_lock--;
    count();
    release_lock()
  fi
}

proctype StoreBuffer(byte t) {
  int value;
end:
  do
  :: atomic { buffer[t]?value; assert(!gone); number[t] = value; value = 0 }
  od
}

proctype User(byte t; byte enters) {
  bool seen;
  int sum;
  byte i;
  do
  :: enters > 0 ->
    enter(t);
    enters--;
    if
    :: leave(t)
    :: handed++
    fi
  :: else -> break
  od;
  users--
}

proctype Completer() {
  bool seen;
  int sum;
  byte i;
  do
  :: atomic { handed > 0 -> handed-- }
    leave(COMPLETER)
  :: atomic { users == 0 && handed == 0 -> break }
  od
}

inline freeze() {
  take_lock(NOBODY);
  barrier_ran = false;
  drained = false;
  locked = true;
  release_lock();
#ifndef BUG_NO_BARRIER
  i = 0;
  do
  :: i < THREADS -> atomic { empty(buffer[i]); i++ }
  :: else -> break
  od;
#endif
  take_lock(NOBODY);
  barrier_ran = true;
  count();
  release_lock();
  atomic { (drained && !mutex); frozen = true; assert(inside == 0) }
}

proctype Closer() {
  int sum;
  byte i;
  freeze();
  take_lock(NOBODY);
  atomic { frozen = false; locked = false }
  release_lock();
  (enters_left == 0);
  freeze();
  gone = true
}

init {
  atomic {
    run StoreBuffer(0);
    run StoreBuffer(1);
    run StoreBuffer(COMPLETER);
    run User(0, ENTERS);
    run User(1, 1);
    run Completer();
    run Closer()
  }
}
