// Computes for as many seconds as it is told, in functions that are compiled and not put into each other.
const depth = 3;

function innermostWork(n) {
  let sum = 0;
  for (let i = 0; i < 2000; i++) sum += Math.sqrt(i ^ n);
  return sum;
}

function recursiveWork(n) {
  return n ? recursiveWork(n - 1) + innermostWork(n) : 0;
}

const end = Date.now() + Number(process.argv[2]) * 1000;
console.log('{"event": "ready"}');
while (Date.now() < end) recursiveWork(depth);
