"""Where this device differs from the clock's executable model on purpose, as changes of its text.

A difference has a reason and replacements (old text, new text); each old text stands once in the
model's file, which is checked when the model is loaded.
"""

Difference = tuple[str, list[tuple[str, str]]]

DEVICE: list[Difference] = [
    (
        "Which ready task comes next is said by a policy.",
        [
            ("        ready.sort(key=lambda t:(t.prio,t.n,t.c.i))\n", ""),
            ("for t in ready[:]:\n", "for t in cfg['pick'](ready,free):\n"),
        ],
    ),
    (
        "Waits end by the device's limit, which these runs set to the limit of event waits.",
        [
            (
                "else 1000*SEC)",
                "else cfg['evlim'])",
            ),
        ],
    ),
    (
        "Tasks fail by running longer than they may, so a failure is a limit, not a completion.",
        [
            (
                "if x[2] is not None: done.append(x)",
                "if x[2] is not None: (late if x[2].fail else done).append(x)",
            ),
            (
                "blk={}",
                "blk={}; late=[]",
            ),
        ],
    ),
    (
        "Whether a launch has to wait for its stream is judged at the first look at its wait.",
        [
            (
                "if k==SLIM: return c.cnt.get(a,0)<b_",
                "if k==SLIM: return c.cnt.get(a,0)<(d if d and not c.started else b_)",
            ),
        ],
    ),
    (
        "A control request behind an entry that is stuck is carried out at an idle gap.",
        [
            (
                """\
                waiting=True
                if not c.started:
""",
                """\
                waiting=True
                if M[b+WKIND] in (CANCEL,RECOVER):
                    cond(c); yield from answer(c,MET); redo=True; continue
                if not c.started:
""",
            ),
        ],
    ),
    (
        "Limits are looked at before dispatch, those of tasks before those of waits.",
        [
            (
                """\
            r=yield from dispatch()
            if r: continue
            for c in cl:
                if c.started""",
                """\
            late.sort(key=lambda x:(x[2].n,x[2].c.i))
            for _,_,t,core in late:
                free[t.cls].append(core); finish(t,FAILED,t.core); ch=True
            late.clear()
            for t in evpend[:]:
                if t.lim<=now and not t.abort: t.abort=True; t.anc=-2; nocore.append(t); ch=True
            if ch: yield True; continue
            for c in cl:
                if c.started""",
            ),
            (
                """\
            for t in evpend[:]:
                if t.lim<=now and not t.abort: t.abort=True; t.anc=-2; nocore.append(t); ch=True
            if not ch: break
""",
                """\
            if ch: continue
            r=yield from dispatch()
            if not r: break
""",
            ),
        ],
    ),
    (
        "A record that cannot succeed still waits for the event's previous record.",
        [
            (
                "start left core evpend",
                "evprev start left core evpend",
            ),
            (
                "t.done=t.started=t.abort=t.evpend=t.ready=False",
                "t.done=t.started=t.abort=t.evpend=t.ready=t.evprev=False",
            ),
            (
                (
                    "if not bad and x['last'] is not None and not x['last'].done: "
                    "x['last'].succ.append((t,2)); t.nd+=1"
                ),
                (
                    "if x['last'] is not None and not x['last'].done: "
                    "x['last'].succ.append((t,2)); t.nd+=1; t.evprev=True"
                ),
            ),
            (
                "if bad: t.abort=True; t.anc=bad[0][1]; nocore.append(t)",
                """\
if bad:
            t.abort=True; t.anc=bad[0][1]
            if not t.evprev: nocore.append(t)""",
            ),
            (
                """\
            if u.done or u.abort: continue
            if status!=OK and node!=2:
                u.abort=True; u.anc=t.anc; nocore.append(u)
""",
                """\
            if node==2: u.evprev=False
            if u.done: continue
            if u.abort:
                if node==2: nocore.append(u)
                continue
            if status!=OK and node!=2:
                u.abort=True; u.anc=t.anc
                if not u.evprev: nocore.append(u)
""",
            ),
            (
                """\
                t.abort=True; t.anc=-1
                nocore.append(t)
""",
                """\
                t.abort=True; t.anc=-1
                if not t.evprev: nocore.append(t)
""",
            ),
        ],
    ),
    (
        "Cancel tells whether it was in time.",
        [
            (
                "t=c.inc.get(a)\n",
                (
                    "t=c.inc.get(a); M[c.b+WC]=int(t is not None and not t.started and "
                    "(not t.abort or t.anc==-1))\n"
                ),
            ),
        ],
    ),
    (
        "Recover forgets a failure, not the order of what is in flight.",
        [
            (
                "if t is None or not t.done or t.status!=OK: c.last.pop(a,None)",
                (
                    "M[c.b+WC]=t.n if t is not None and (t.done or "
                    "any(u.s==a and u.abort for u in c.inc.values())) else 0\n"
                    "            if M[c.b+WC]: c.last.pop(a,None)"
                ),
            ),
        ],
    ),
    (
        (
            "A wait for a value whose record is known to have failed aborts at once, like any task "
            "behind a failed one: the driver, which may know it already, submits it POISONED."
        ),
        [
            (
                "        need=0 if bad else",
                """\
        if op==EWAIT and not poison:
            z=ev(cl[evo],evi); y=z['st'].get(val)
            if y is not None and y[0]!=OK: bad=sorted([*bad,(y[2],y[1])])
        need=0 if bad else""",
            ),
            (
                "x['st'][t.val]=(status,t.anc)",
                "x['st'][t.val]=(status,t.anc,t.cqi)",
            ),
        ],
    ),
]

DRIVER: list[Difference] = [
    (
        "One namespace.",
        [
            (
                "from dev import *\n",
                "",
            ),
        ],
    ),
    (
        "A launch that has blocked on a stream goes on at half the stream's limit.",
        [
            (
                "r=yield from self.wait(SLIM,short,SL-need[short]+1,launch=1)",
                (
                    "room=SL-need[short]+1; r=yield from "
                    "self.wait(SLIM,short,min(room,SL//2+1),room,launch=1)"
                ),
            ),
        ],
    ),
    (
        "The deadline of a wait that was posted again stays.",
        [
            (
                "if r in(NEXT,CALL): abs_=self.dl",
                "if r in(NEXT,CALL) and self.dl>=0: abs_=self.dl",
            ),
        ],
    ),
    (
        (
            "A wait for an event whose last record has failed is submitted POISONED, and what is "
            "POISONED has no predecessors."
        ),
        [
            (
                "            poison=min(bad)[1] if bad else 0\n",
                """\
            if t['op']==EWAIT:
                z=self.erec.get(t['evi'])
                if z in self.st and self.st[z]!=OK: bad.append((self.cqi[z],self.anc[z]))
            if t['op']==EREC: self.erec[t['evi']]=self.n
            poison=min(bad)[1] if bad else 0
            if bad: ps=[]
""",
            ),
            (
                "self.popped=0\n",
                "self.popped=0; self.erec={}\n",
            ),
        ],
    ),
    (
        "Edges inside of a batch are relative.",
        [
            (
                "for p in t['preds']:\n",
                "for p in (p if p>0 else n+p for p in t['preds']):\n",
            ),
        ],
    ),
]
