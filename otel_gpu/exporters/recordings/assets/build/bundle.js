// What the flame graph page needs of D3, and nothing else: `npm install && npm run build` writes ../d3-flame-graph.min.js.
export { default as chart } from "d3-flame-graph";
export { select } from "d3-selection";
