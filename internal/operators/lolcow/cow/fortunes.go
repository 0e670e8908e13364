// SPDX-License-Identifier: Apache-2.0

package cow

// fortunes are what a cow says that was told nothing to say.
var fortunes = []string{
	"Today's detour goes past the better grass.",
	"Whoever chews twice has to explain only once.",
	"A gate that is left open is a decision, too.",
	"You will soon be grateful for a log line that you wrote last year.",
	"The herd agrees. That does not make it right, but it makes it warm.",
	"Good fences have a test for each gate.",
	"A calm kernel is worth a loud morning.",
	"Somebody will thank you today for a name that you chose well.",
	"Rain is only the sky rolling out a new release.",
	"Do one thing, look whether it is so, then do the next.",
	"The bell does not make the cow, but it helps to find her.",
	"Look at the field before you trust the map of it.",
	"What you cannot undo, do on one node first.",
	"An answer may be waiting behind the second coffee.",
	"Lie down before it rains, not because it rains.",
	"The shortest way to the barn is to have closed it yesterday.",
	"You will find what you search for in the file that you opened first.",
	"Nobody counts the flies that you ignored.",
	"A small herd, well known by name, gives the most milk.",
	"Leave the pasture a little greener than you found it.",
	"Your next idea is a good one. The one after it is shorter.",
	"Even the fastest cow cannot outrun her own tail.",
	"If it moos twice, it is not a coincidence.",
	"Trust the one who says what she does not know.",
	"Be patient with new grass and old hardware.",
	"There is no cloud, only somebody else's weather.",
	"What was quiet for a year deserves a look, and maybe a pat.",
	"A watched bucket fills, it only feels slower.",
	"The moon has no up time to speak of, and still everybody looks.",
	"You are somebody's favourite error message.",
	"Sleep is the oldest form of garbage collection.",
	"Never explain a pun to a cow. She heard it, she is still chewing.",
}
