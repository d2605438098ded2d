// Confluent's client for JavaScript with the checks of kafkajs.js, whose interface it has.
process.argv.push("confluent");
require("./kafkajs.js");
