#!/bin/sh
# An agent that does what the payload of its task says: a word, then whatever that takes.
# It stands for one that edits the files of its task and commits.
cat > prompt.seen
mv prompt.seen "$(git rev-parse --absolute-git-dir)/prompt.seen"
echo "$DIBS_TASK is done by $DIBS_AGENT on port $DIBS_PORT with $DIBS_DATABASE"
echo "$$ $DIBS_TASK $DIBS_WORKER" >> "${AGENT_STARTS:-/dev/null}"
do=$(printf %s "$DIBS_TASK_TITLE" | cut -d: -f1)
case "$do" in
fail) echo "that cannot be done"; echo half > "half-$DIBS_TASK"; exit 3 ;;
hang) echo "thinking"; echo half > "half-$DIBS_TASK"; sleep 1000 & sleep 1000 ;;
nothing) echo "nothing to do" ;;
leave) echo "left" > "$DIBS_TASK.md" ;;
cost) echo '{"type": "result", "total_cost_usd": 0.75}' ;;
esac
sleep "${AGENT_TAKES_S:-0}"
case "$do" in
nothing | leave) ;;
*)
    echo "$DIBS_TASK" > "$DIBS_TASK.md"
    git add "$DIBS_TASK.md" && git commit -qm "Do $DIBS_TASK"
    ;;
esac
