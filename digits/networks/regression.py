# Regression: predicts numbers from an image, such as an angle or a position, instead of a class. A small
# convolutional network.
#
# Designed for small images, such as 32x32; any size from 16x16 works. Labels are OUTPUTS numbers for each
# image, best scaled to about -1 to 1.
# Recommended settings: Adam, learning rate 0.001, batches of 32, 30 epochs, per-channel mean.
#
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=32 train_epochs=30 use_mean=pixel
# kinds: image-regression

from keras import layers

# How many numbers are predicted for each image.
OUTPUTS = 2


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.x / 64.0
        for number, filters in enumerate([16, 32, 64], 1):
            net = layers.Conv2D(
                filters,
                3,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                name=f"conv{number}",
            )(net)
            net = layers.MaxPooling2D(2)(net)
        net = layers.Flatten()(net)
        net = layers.Dense(128, activation="relu", kernel_initializer="he_normal", name="fc")(net)
        # Neither ReLU nor softmax: the numbers may be anything.
        return layers.Dense(OUTPUTS, name="numbers")(net)

    @model_property
    def loss(self):
        wanted = tf.cast(tf.reshape(self.y, [-1, OUTPUTS]), tf.float32)
        error = tf.reduce_mean(tf.abs(self.inference - wanted))
        self.summaries.append(tf.summary.scalar("mean_error", error))
        return digits.mse_loss(self.inference, wanted)
